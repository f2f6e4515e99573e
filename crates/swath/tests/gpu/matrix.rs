//! Whatever a file is like and however it is read, a GPU gives the samples that the CPU gives.

use crate::{
    cases::{Case, Rng},
    driver,
};

/// Cases of each script.
const CASES: usize = 110;

#[test]
fn samples_are_those_of_the_cpu() {
    let Some(fake) = driver::fake() else { return };
    let scripts = ["", "async=1 seed=0", "sms=1", "async=1 seed=1", "async=1 seed=2", "sms=60", "async=1 seed=7", "async=1 seed=9"];
    let mut faults = Vec::new();
    let mut on_device = 0;
    for (seed, script) in (0..).zip(scripts) {
        fake.with(script, |gpu| {
            let mut rng = Rng::new(seed);
            for _ in 0..CASES {
                let case = Case::draw(&mut rng);
                on_device += u32::from(case.on_device);
                match case.check(gpu, |options| options) {
                    Ok(report) if case.on_device && (report.host_tiles > 0 || !report.notices.is_empty()) => {
                        faults.push(format!("{script}: {}: {:?}", case.what, report.notices));
                    }
                    Ok(report) if !case.on_device && report.notices.len() != 1 => {
                        faults.push(format!("{script}: {}: {:?}", case.what, report.notices));
                    }
                    Ok(_) => {}
                    Err(fault) => faults.push(format!("{script}: {fault}")),
                }
            }
        });
    }
    assert!(on_device > 400, "{on_device}");
    assert!(faults.is_empty(), "{} faults, among them {:#?}", faults.len(), &faults[..faults.len().min(5)]);
}
