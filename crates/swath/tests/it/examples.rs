//! The short course runs.

use crate::build::{Directory, File, Tag};

#[path = "../../examples/01_open.rs"]
#[allow(dead_code)]
mod open;
#[path = "../../examples/03_overview.rs"]
#[allow(dead_code)]
mod overview;
#[path = "../../examples/02_window.rs"]
#[allow(dead_code)]
mod window;

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
    std::fs::remove_file(&path).unwrap();
}
