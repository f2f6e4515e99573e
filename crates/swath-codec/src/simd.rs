//! Runs plain loops compiled for the widest vectors this CPU has.
//!
//! Hot loops are written as ordinary safe code, marked `#[inline(always)]`, and handed over as a [`Task`]. They are
//! compiled twice, and the wider copy runs where the CPU has it. This is the one place in the crate with `unsafe`
//! besides the binding to libwebp.

/// A piece of work whose body inlines into the caller.
pub trait Task {
    /// What it gives.
    type Output;
    /// Does it. Implementations are `#[inline(always)]`, and so is what they call.
    fn run(self) -> Self::Output;
}

/// Runs the task with the widest instruction set there is.
pub fn widest<T: Task>(task: T) -> T::Output {
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx2")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("bmi2")
            && std::is_x86_feature_detected!("lzcnt")
            && std::is_x86_feature_detected!("popcnt")
            && std::is_x86_feature_detected!("fma")
        {
            // SAFETY: every feature that `with_avx2` is compiled for was just found on this CPU.
            #[allow(unsafe_code)]
            return unsafe { with_avx2(task) };
        }
    }
    task.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,fma")]
fn with_avx2<T: Task>(task: T) -> T::Output {
    task.run()
}
