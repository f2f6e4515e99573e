//! The short course runs.

use crate::build::{Directory, File, Tag};

#[path = "../../examples/05_gpu.rs"]
#[allow(dead_code)]
mod gpu;
#[path = "../../examples/01_open.rs"]
#[allow(dead_code)]
mod open;
#[path = "../../examples/03_overview.rs"]
#[allow(dead_code)]
mod overview;
#[path = "../../examples/06_remote.rs"]
#[allow(dead_code)]
mod remote;
#[path = "../../examples/02_window.rs"]
#[allow(dead_code)]
mod window;

#[path = "../../examples/04_write_cog.rs"]
#[allow(dead_code)]
mod write_cog;

#[test]
fn examples_run() {
    let level =
        |size: u32, kind: u32| Directory::tiled(size, size, 64, |x, y| (x ^ y) as u8).with(254, Tag::Long(vec![kind]));
    let file = File { directories: vec![level(1024, 0).deflated(), level(256, 1)], ..File::default() };
    let path = std::env::temp_dir().join(format!("swath-examples-{}.tif", std::process::id()));
    std::fs::write(&path, file.bytes()).unwrap();
    open::run(&path).unwrap();
    window::run(&path).unwrap();
    overview::run(&path).unwrap();
    gpu::run(&path).unwrap();
    let server = crate::server::Server::start(file.bytes().into()).unwrap();
    remote::run(&server.url).unwrap();
    assert!(server.take().0 >= 1);
    let part = path.with_extension("part.tif");
    write_cog::run(&path, &part).unwrap();
    assert!(swath::Dataset::open(&path).unwrap().validate(swath::validate::Check::Full).unwrap().is_valid_strictly());
    assert_eq!(swath::Dataset::open(&part).unwrap().width(), 512);
    std::fs::remove_file(&part).unwrap();
    std::fs::remove_file(&path).unwrap();
}
