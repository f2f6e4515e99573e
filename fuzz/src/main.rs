//! The target that `SWATH_FUZZ_TARGET` names, under libFuzzer.
#![no_main]
#![allow(unsafe_code, clippy::expect_used, reason = "libFuzzer calls a C function")]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use swath_fuzz::Target;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("SWATH_FUZZ_TARGET").expect("SWATH_FUZZ_TARGET names a target");
    swath_fuzz::target(&name).expect("SWATH_FUZZ_TARGET is one of those in fuzz/src/lib.rs")
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));
