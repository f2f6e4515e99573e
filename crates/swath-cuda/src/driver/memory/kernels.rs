//! The kernels that a context has loaded: machine code where there is some for the chip, else PTX.

use std::{collections::HashMap, ffi::CString};

use crate::{
    driver::{context::Context, cuda::Handle},
    error::DeviceError,
    kernel_code::KernelCode,
};

/// The kernels of one context. A module loads when one of its kernels is first used.
pub(in crate::driver) struct LoadedKernels {
    modules: HashMap<&'static str, Handle>,
    functions: HashMap<&'static str, Function>,
    /// The form in which the next module is loaded.
    pub(super) code: KernelCode,
    /// Why `code` is not the form that was chosen at first, until a report takes it.
    pub(super) refusal: Option<String>,
}

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for LoadedKernels {}

/// A kernel that is ready to be launched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function {
    pub(in crate::driver) raw: Handle,
    /// Threads of a block.
    pub(crate) threads: u32,
    /// Blocks that the whole device holds at once.
    pub(crate) resident: u32,
}

impl LoadedKernels {
    pub(in crate::driver) fn new(code: KernelCode) -> Self {
        Self { modules: HashMap::new(), functions: HashMap::new(), code, refusal: None }
    }

    /// Returns the kernel `name` of a module. The module loads when one of its kernels is first used.
    pub(in crate::driver) fn function(
        &mut self,
        context: &Context,
        module: &'static str,
        ptx: &'static str,
        name: &'static str,
    ) -> Result<Function, DeviceError> {
        if let Some(function) = self.functions.get(name) {
            return Ok(*function);
        }
        let loaded = match self.modules.get(module) {
            Some(loaded) => *loaded,
            None => {
                let loaded = self.load(context, module, ptx)?;
                self.modules.insert(module, loaded);
                loaded
            }
        };
        let threads = threads_of(ptx, name).ok_or_else(|| {
            DeviceError::Internal(format!("the PTX of {module} does not state the threads of {name}"))
        })?;
        // SAFETY: modules stay loaded as long as `self`.
        let raw = unsafe { context.module_function(loaded, &ended(name)?) }?;
        // These kernels use no shared memory and profit from the cache.
        let on_cache = matches!(module, "place" | "take" | "cut" | "pack" | "adler") || module.starts_with("shrink");
        if !on_cache {
            // SAFETY: as above.
            unsafe { context.prefer_shared(raw) }?;
        }
        // SAFETY: as above.
        let occupancy = unsafe { context.occupancy(raw, threads) }?;
        let resident = occupancy * context.facts.multiprocessors.max(1) as u32;
        let function = Function { raw, threads, resident };
        self.functions.insert(name, function);
        Ok(function)
    }

    /// Loads a module: machine code where there is some for this chip, else PTX. After a driver refuses machine code,
    /// all modules load as PTX.
    fn load(&mut self, context: &Context, module: &'static str, ptx: &str) -> Result<Handle, DeviceError> {
        let mut refusal = None;
        if let Some(archive) = self.code.archive() {
            let found = archive.module(module).map_err(DeviceError::Usage);
            // SAFETY: images in archives are whole cubins.
            match found.and_then(|image| unsafe { context.module_load(module, image) }) {
                Err(error) if !error.is_out_of_memory() => refusal = Some(error),
                result => return result,
            }
        }
        // SAFETY: the text ends with a zero.
        let loaded = unsafe { context.module_load(module, ended(ptx)?.as_bytes_with_nul()) }?;
        // Only after the PTX loaded: a lost device refuses both.
        if let Some(error) = refusal {
            self.refusal = Some(format!("the driver compiles the kernels: it refused {} ({error})", self.code));
            self.code = KernelCode::Ptx;
        }
        Ok(loaded)
    }

    /// Unloads every module.
    ///
    /// # Safety
    /// The context is the one that the modules were loaded in, and none of their kernels is used again.
    pub(in crate::driver) unsafe fn unload(&mut self, context: &Context) {
        self.functions.clear();
        for (_, module) in self.modules.drain() {
            // SAFETY: as the caller promises.
            unsafe { context.module_unload(module) };
        }
    }
}

/// Returns a text that ends with a zero, as the driver expects.
fn ended(text: &str) -> Result<CString, DeviceError> {
    CString::new(text).map_err(|_| DeviceError::Internal("a kernel's text or name contains a NUL byte".into()))
}

/// Returns the threads of a kernel's blocks, as its PTX states them.
fn threads_of(ptx: &str, name: &str) -> Option<u32> {
    let entry = ptx.split(".entry ").find(|entry| {
        entry.strip_prefix(name).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })?;
    let bounds = entry.split(".maxntid").nth(1)?;
    bounds.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
