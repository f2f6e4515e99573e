//! Runs a hot loop with the widest vector instructions that this CPU has.
//!
//! Hot loops are ordinary safe code, marked `#[inline(always)]` and passed as a [`HotLoop`]. The compiler emits each twice,
//! and the AVX2 copy runs where the CPU has AVX2. This is the only place in the crate with `unsafe`.

/// A loop whose body inlines into its caller.
pub trait HotLoop {
    /// The result of [`HotLoop::run`].
    type Output;
    /// Runs the loop. Implementations, and the functions they call, must be `#[inline(always)]`.
    fn run(self) -> Self::Output;
}

/// Runs the loop with the widest instruction set that this CPU has.
pub fn widest<T: HotLoop>(hot_loop: T) -> T::Output {
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx2")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("bmi2")
            && std::is_x86_feature_detected!("lzcnt")
            && std::is_x86_feature_detected!("popcnt")
            && std::is_x86_feature_detected!("fma")
        {
            // SAFETY: the checks above found every feature that `with_avx2` is compiled for on this CPU.
            #[allow(unsafe_code)]
            return unsafe { with_avx2(hot_loop) };
        }
    }
    hot_loop.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,fma")]
fn with_avx2<T: HotLoop>(hot_loop: T) -> T::Output {
    hot_loop.run()
}
