//! Shared by the wrappers of nvJPEG and nvJPEG2000: handles, sessions of streams, and statuses.
//!
//! Both libraries hand out opaque handles and keep device memory in states that belong to a stream, and both number their
//! statuses alike.

use std::{
    collections::HashMap,
    ffi::{c_int, c_void},
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    driver::libraries::load::{Absent, CallError},
    error::{DeviceError, OUT_OF_MEMORY},
};

/// A handle of a library, or of an object that the library made.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpaqueHandle(pub(super) *mut c_void);

// SAFETY: both libraries document their library handles as thread safe, and all other objects as usable from one thread at a
// time, which the mutex around each session ensures.
unsafe impl Send for OpaqueHandle {}
// SAFETY: as above; only library handles are ever shared.
unsafe impl Sync for OpaqueHandle {}

/// A library handle, created on first use. A failure is not kept, since memory may be short only for a while.
#[derive(Debug, Default)]
pub(super) struct LazyHandle(Mutex<Option<OpaqueHandle>>);

impl LazyHandle {
    /// Returns the handle; `create` makes it where there is none yet.
    pub(super) fn get_or_create(
        &self,
        create: impl FnOnce() -> Result<OpaqueHandle, CallError>,
    ) -> Result<OpaqueHandle, CallError> {
        let mut handle = lock(&self.0);
        if let Some(handle) = *handle {
            return Ok(handle);
        }
        let created = create()?;
        *handle = Some(created);
        Ok(created)
    }

    /// Takes the handle out, for the caller to destroy.
    pub(super) fn take(&self) -> Option<OpaqueHandle> {
        lock(&self.0).take()
    }
}

/// The state of a library for each stream. Only the stream orders the work on the buffers of its sessions.
#[derive(Debug)]
pub(super) struct Sessions<K, S>(Mutex<HashMap<K, Arc<Mutex<S>>>>);

impl<K, S> Default for Sessions<K, S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Copy + Eq + Hash, S> Sessions<K, S> {
    /// Returns the session of `key`; `create` makes it where there is none yet.
    pub(super) fn get_or_create(
        &self,
        key: K,
        create: impl FnOnce() -> Result<S, CallError>,
    ) -> Result<Arc<Mutex<S>>, CallError> {
        let mut sessions = lock(&self.0);
        if let Some(session) = sessions.get(&key) {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(Mutex::new(create()?));
        sessions.insert(key, Arc::clone(&session));
        Ok(session)
    }

    /// Removes the sessions whose key `matches`, and gives each to `destroy` once.
    pub(super) fn remove(&self, matches: impl Fn(&K) -> bool, destroy: impl Fn(&S)) {
        lock(&self.0).retain(|key, session| {
            let removed = matches(key);
            if removed {
                destroy(&lock(session));
            }
            !removed
        });
    }
}

/// Synchronises the stream that a call works on: `Ok` only when the stream has passed everything queued on it.
pub type Wait<'a> = &'a dyn Fn() -> Result<(), String>;

/// Locks a mutex. No code leaves a session half changed while it holds the lock, so a panic elsewhere does not end all work.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The status of a call that succeeded.
pub(super) const SUCCESS: c_int = 0;
/// The status of a call that found no memory.
const ALLOCATOR_FAILURE: c_int = 5;
/// Statuses that are about the tile, not about the library or the device: invalid parameter, not supported, implementation
/// not supported.
const TILE_STATUSES: [c_int; 3] = [2, 4, 9];

/// Turns a status into an error that names the call. `names` are the library's names for its statuses.
pub(super) fn check_status(call: &'static str, status: c_int, names: &[&str]) -> Result<(), CallError> {
    if status == SUCCESS {
        return Ok(());
    }
    let text = usize::try_from(status).ok().and_then(|index| names.get(index)).unwrap_or(&"unknown status");
    Err(CallError { call, status: status.into(), text: (*text).to_owned() })
}

/// Asks a library for its major version, minor version and patch level.
pub(super) fn version_numbers(
    label: &'static str,
    call: &'static str,
    get: unsafe extern "C" fn(c_int, *mut c_int) -> c_int,
    names: &[&str],
) -> Result<[c_int; 3], Absent> {
    let mut numbers: [c_int; 3] = [0; 3];
    for (kind, number) in (0..).zip(&mut numbers) {
        // SAFETY: `number` is writable for the length of the call.
        let status = unsafe { get(kind, number) };
        check_status(call, status, names).map_err(|error| Absent::Silent { label, error })?;
    }
    Ok(numbers)
}

/// Why a whole batch was not encoded, through no fault of a tile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeFailure {
    /// The library found no memory.
    #[error("{0}")]
    Memory(CallError),
    /// A call failed.
    #[error("{0}")]
    Call(CallError),
    /// The stream could not be waited for.
    #[error("waiting for the stream failed: {0}")]
    Wait(String),
    /// The quality is not 1 to 100.
    #[error("JPEG quality is {0}, not 1 to 100")]
    Quality(u8),
}

impl EncodeFailure {
    pub(super) fn of(error: CallError) -> Self {
        if error.status == i64::from(ALLOCATOR_FAILURE) { Self::Memory(error) } else { Self::Call(error) }
    }
}

impl From<EncodeFailure> for DeviceError {
    fn from(failure: EncodeFailure) -> Self {
        match failure {
            // Reported as the driver reports it, so that the caller tries again with less at once.
            EncodeFailure::Memory(error) => match error.into() {
                Self::Call { call, text, .. } => Self::Call { call, code: OUT_OF_MEMORY, text },
                other => other,
            },
            EncodeFailure::Call(error) => error.into(),
            EncodeFailure::Wait(text) => {
                Self::Call { call: "waiting for a library".to_owned(), code: CallError::DEVICE_CODE, text }
            }
            EncodeFailure::Quality(_) => Self::Usage(failure.to_string()),
        }
    }
}

/// Separates the result of one tile (inner) from the result of the library or the device (outer).
pub(super) fn tile_or_failure<R: From<CallError>>(
    result: Result<(), CallError>,
) -> Result<Result<(), R>, EncodeFailure> {
    match result {
        Ok(()) => Ok(Ok(())),
        Err(error) if TILE_STATUSES.iter().any(|status| i64::from(*status) == error.status) => Ok(Err(error.into())),
        Err(error) => Err(EncodeFailure::of(error)),
    }
}
