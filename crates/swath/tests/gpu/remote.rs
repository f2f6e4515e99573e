//! Remote files are read to a GPU like local ones.

use crate::{cases::ON_DEVICE, driver, served};

#[test]
fn served_files_reach_the_gpu_in_few_requests() {
    let Some(fake) = driver::fake() else { return };
    for compression in ON_DEVICE {
        fake.with("", |gpu| {
            served::check(gpu, compression, 400, 64).unwrap_or_else(|fault| panic!("{compression}: {fault}"));
        });
    }
}
