//! The reference: the advanced encoder of libzstd, and its decoder.
#![allow(unsafe_code, reason = "the library is C")]

use std::ffi::{c_uint, c_void};

pub(crate) use zstd_sys::ZSTD_cParameter::{self as Parameter, *};
use zstd_sys::{
    ZSTD_CCtx, ZSTD_CCtx_reset, ZSTD_CCtx_setParameter, ZSTD_CCtx_setPledgedSrcSize, ZSTD_DCtx, ZSTD_DCtx_reset,
    ZSTD_EndDirective, ZSTD_ResetDirective, ZSTD_compress2, ZSTD_compressBound, ZSTD_compressStream2, ZSTD_createCCtx,
    ZSTD_createDCtx, ZSTD_decompressDCtx, ZSTD_decompressStream, ZSTD_freeCCtx, ZSTD_freeDCtx, ZSTD_getErrorName,
    ZSTD_inBuffer, ZSTD_isError, ZSTD_outBuffer,
};

// Parameters that the library calls experimental.
pub(crate) const LITERAL_MODE: Parameter = ZSTD_c_experimentalParam5;
pub(crate) const BLOCK_DELIMITERS: Parameter = ZSTD_c_experimentalParam11;
pub(crate) const VALIDATE_SEQUENCES: Parameter = ZSTD_c_experimentalParam12;
pub(crate) const BLOCK_SPLITTER: Parameter = ZSTD_c_experimentalParam13;
pub(crate) const MAX_BLOCK_SIZE: Parameter = ZSTD_c_experimentalParam18;
pub(crate) const FIND_REPEATS: Parameter = ZSTD_c_experimentalParam19;

pub(crate) type Settings = Vec<(Parameter, i32)>;

/// A stream and its decoded bytes.
pub(crate) type Tile = (Vec<u8>, Vec<u8>);

pub(crate) fn level(level: i32) -> Settings {
    vec![(ZSTD_c_compressionLevel, level)]
}

/// Literals, then a match; a sequence without a match ends a block.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Sequence {
    pub(crate) offset: c_uint,
    pub(crate) literals: c_uint,
    pub(crate) matched: c_uint,
    pub(crate) repeat: c_uint,
}

// zstd-sys declares it only with a feature that would compile the library a second time.
unsafe extern "C" {
    fn ZSTD_compressSequences(
        context: *mut ZSTD_CCtx,
        dst: *mut c_void,
        dst_len: usize,
        sequences: *const Sequence,
        count: usize,
        src: *const c_void,
        src_len: usize,
    ) -> usize;
}

fn check(code: usize) -> usize {
    // SAFETY: both take any number, and the name is a string that lives as long as the program.
    unsafe {
        let name = || std::ffi::CStr::from_ptr(ZSTD_getErrorName(code));
        assert!(ZSTD_isError(code) == 0, "libzstd: {:?}", name());
    }
    code
}

#[derive(Debug)]
pub(crate) struct Encoder(*mut ZSTD_CCtx);

impl Encoder {
    pub(crate) fn new() -> Self {
        // SAFETY: the function has no arguments.
        let context = unsafe { ZSTD_createCCtx() };
        assert!(!context.is_null());
        Self(context)
    }

    fn set(&mut self, settings: &[(Parameter, i32)]) {
        // SAFETY: the context is ours and alive until `drop`.
        unsafe {
            check(ZSTD_CCtx_reset(self.0, ZSTD_ResetDirective::ZSTD_reset_session_and_parameters));
            for (parameter, value) in settings {
                check(ZSTD_CCtx_setParameter(self.0, *parameter, *value));
            }
        }
    }

    fn room(len: usize) -> Vec<u8> {
        // SAFETY: the function accepts any number.
        vec![0; unsafe { ZSTD_compressBound(len) } + 1024]
    }

    /// One frame.
    pub(crate) fn frame(&mut self, settings: &[(Parameter, i32)], bytes: &[u8]) -> Vec<u8> {
        self.set(settings);
        let mut out = Self::room(bytes.len());
        // SAFETY: pointers and lengths are of slices.
        let len = check(unsafe {
            ZSTD_compress2(self.0, out.as_mut_ptr().cast(), out.len(), bytes.as_ptr().cast(), bytes.len())
        });
        out.truncate(len);
        out
    }

    /// One frame that is flushed after each piece, and ended after the last. Without `length_known`, the encoder does not know
    /// the length at the start.
    pub(crate) fn flushed(&mut self, settings: &[(Parameter, i32)], pieces: &[&[u8]], length_known: bool) -> Vec<u8> {
        self.set(settings);
        let all: usize = pieces.iter().map(|piece| piece.len()).sum();
        if length_known {
            // SAFETY: the context is ours.
            check(unsafe { ZSTD_CCtx_setPledgedSrcSize(self.0, all as u64) });
        }
        let mut out = Self::room(all + 64 * pieces.len());
        let mut to = ZSTD_outBuffer { dst: out.as_mut_ptr().cast(), size: out.len(), pos: 0 };
        let end = std::iter::repeat_n(ZSTD_EndDirective::ZSTD_e_flush, pieces.len());
        let steps = pieces.iter().copied().zip(end).chain([(&[][..], ZSTD_EndDirective::ZSTD_e_end)]);
        for (piece, directive) in steps {
            let mut from = ZSTD_inBuffer { src: piece.as_ptr().cast(), size: piece.len(), pos: 0 };
            // SAFETY: the buffers are slices, which outlive the call.
            let left = check(unsafe { ZSTD_compressStream2(self.0, &raw mut to, &raw mut from, directive) });
            assert!(left == 0 && from.pos == piece.len());
        }
        let len = to.pos;
        out.truncate(len);
        out
    }

    /// One frame with these matches; sequences without one end blocks.
    pub(crate) fn woven(&mut self, settings: &[(Parameter, i32)], sequences: &[Sequence], bytes: &[u8]) -> Vec<u8> {
        let mut all = vec![(BLOCK_DELIMITERS, 1), (VALIDATE_SEQUENCES, 1), (ZSTD_c_minMatch, 3)];
        all.extend(settings);
        self.set(&all);
        let mut out = Self::room(bytes.len());
        // SAFETY: pointers and lengths are of slices, and the library checks the sequences.
        let len = check(unsafe {
            ZSTD_compressSequences(
                self.0,
                out.as_mut_ptr().cast(),
                out.len(),
                sequences.as_ptr(),
                sequences.len(),
                bytes.as_ptr().cast(),
                bytes.len(),
            )
        });
        out.truncate(len);
        out
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and not used after this.
        unsafe { ZSTD_freeCCtx(self.0) };
    }
}

#[derive(Debug)]
pub(crate) struct Decoder(*mut ZSTD_DCtx);

impl Decoder {
    pub(crate) fn new() -> Self {
        // SAFETY: the function has no arguments.
        let context = unsafe { ZSTD_createDCtx() };
        assert!(!context.is_null());
        Self(context)
    }

    /// Decodes a stream of at most `room` bytes; `None` if the library refuses it.
    pub(crate) fn decode(&mut self, stream: &[u8], room: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; room];
        // SAFETY: pointers and lengths are of slices.
        let code =
            unsafe { ZSTD_decompressDCtx(self.0, out.as_mut_ptr().cast(), room, stream.as_ptr().cast(), stream.len()) };
        // SAFETY: the function accepts any number.
        if unsafe { ZSTD_isError(code) } != 0 {
            return None;
        }
        out.truncate(code);
        Some(out)
    }

    /// Decodes a tile: exactly its bytes, else `None`.
    pub(crate) fn tile(&mut self, stream: &[u8], len: usize) -> Option<Vec<u8>> {
        self.decode(stream, len).filter(|bytes| bytes.len() == len)
    }
}

/// What follows the bytes that fill a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// More of a sound stream, or nothing.
    Sound,
    /// Bytes that the library refuses.
    Damaged,
    /// The stream ends before its last frame does.
    Cut,
}

impl Decoder {
    /// Decodes step by step. Returns the state of the stream after its first `len` decoded bytes, which must be sound.
    pub(crate) fn rest(&mut self, stream: &[u8], len: usize) -> Rest {
        // SAFETY: the context is ours and alive until `drop`.
        check(unsafe { ZSTD_DCtx_reset(self.0, ZSTD_ResetDirective::ZSTD_reset_session_only) });
        let (mut made, mut out) = (0, vec![0; 1 << 16]);
        let mut from = ZSTD_inBuffer { src: stream.as_ptr().cast(), size: stream.len(), pos: 0 };
        loop {
            let mut to = ZSTD_outBuffer { dst: out.as_mut_ptr().cast(), size: out.len(), pos: 0 };
            let before = from.pos;
            // SAFETY: the buffers are slices, which outlive the call.
            let left = unsafe { ZSTD_decompressStream(self.0, &raw mut to, &raw mut from) };
            // SAFETY: the function accepts any number.
            if unsafe { ZSTD_isError(left) } != 0 {
                return Rest::Damaged;
            }
            made += to.pos;
            let stalled = to.pos == 0 && from.pos == before;
            if from.pos == stream.len() && (left == 0 || stalled) {
                assert!(made >= len, "{made} bytes of {len}");
                return if left == 0 { Rest::Sound } else { Rest::Cut };
            }
            assert!(!stalled, "the library makes no progress");
        }
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and not used after this.
        unsafe { ZSTD_freeDCtx(self.0) };
    }
}
