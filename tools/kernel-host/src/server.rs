//! A running kernel host and its requests.

use std::{
    io::{self, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::OnceLock,
};

/// How the kernels were compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// Optimised, without a sanitizer.
    Plain,
    /// Under the address and undefined-behaviour sanitizers.
    Asan,
    /// Under the thread sanitizer.
    Tsan,
}

impl Build {
    fn program(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Asan => "asan",
            Self::Tsan => "tsan",
        }
    }
}

/// A buffer of a request. Its memory is exactly as long as its contents, so that a sanitizer sees an access to the
/// first byte beyond.
#[derive(Debug, Clone, Copy)]
pub enum Buffer<'a> {
    /// Read only.
    In(&'a [u8]),
    /// Written and sent back; so many bytes, filled with a pattern.
    Out(usize),
    /// Read, written and sent back.
    InOut(&'a [u8]),
}

/// A part of a kernel's arguments.
#[derive(Debug, Clone, Copy)]
pub enum Argument<'a> {
    /// A pointer to a buffer of the request, at this offset in it.
    Pointer(usize, u64),
    /// Anything else, as its bytes in memory.
    Bytes(&'a [u8]),
}

/// A running kernel host.
#[derive(Debug)]
pub struct KernelHost {
    child: Child,
    requests: BufWriter<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl KernelHost {
    /// Starts a kernel host, after building it if a source has changed.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn start(build: Build) -> io::Result<Self> {
        let mut child = Command::new(folder()?.join(build.program()))
            .env("ASAN_OPTIONS", "detect_leaks=0:abort_on_error=0")
            .env("TSAN_OPTIONS", "halt_on_error=1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let gone = || io::Error::other("the kernel host has no pipes");
        let requests = BufWriter::with_capacity(1 << 16, child.stdin.take().ok_or_else(gone)?);
        let answers = BufReader::with_capacity(1 << 16, child.stdout.take().ok_or_else(gone)?);
        Ok(Self { child, requests, answers })
    }

    /// Runs a kernel with `blocks` blocks of `lanes` lanes and returns the buffers that it may have written, in order.
    ///
    /// # Errors
    /// When there is no such kernel, its arguments have another length, or it fails: the report of a sanitizer is then
    /// on the standard error output.
    pub fn run(
        &mut self,
        kernel: &str,
        blocks: u32,
        lanes: u32,
        buffers: &[Buffer<'_>],
        arguments: &[Argument<'_>],
    ) -> io::Result<Vec<Vec<u8>>> {
        let outcome = self.exchange(kernel, blocks, lanes, buffers, arguments);
        match outcome {
            Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe) => {
                let end = self.child.wait()?;
                Err(io::Error::other(format!("{kernel}: the kernel host ended ({end}); its report stands above")))
            }
            outcome => outcome,
        }
    }

    fn exchange(
        &mut self,
        kernel: &str,
        blocks: u32,
        lanes: u32,
        buffers: &[Buffer<'_>],
        arguments: &[Argument<'_>],
    ) -> io::Result<Vec<Vec<u8>>> {
        let to = &mut self.requests;
        put(to, kernel.len() as u32)?;
        to.write_all(kernel.as_bytes())?;
        put(to, lanes)?;
        put(to, blocks)?;
        put(to, buffers.len() as u32)?;
        for buffer in buffers {
            let (len, flags, contents) = match buffer {
                Buffer::In(bytes) => (bytes.len(), 1, *bytes),
                Buffer::Out(len) => (*len, 2, &[][..]),
                Buffer::InOut(bytes) => (bytes.len(), 3, *bytes),
            };
            to.write_all(&(len as u64).to_le_bytes())?;
            put(to, flags)?;
            to.write_all(contents)?;
        }
        let (mut bytes, mut patches) = (Vec::new(), Vec::new());
        for argument in arguments {
            match argument {
                Argument::Pointer(buffer, within) => {
                    patches.push((bytes.len() as u32, *buffer as u32, *within));
                    bytes.extend([0; 8]);
                }
                Argument::Bytes(raw) => bytes.extend_from_slice(raw),
            }
        }
        put(to, bytes.len() as u32)?;
        to.write_all(&bytes)?;
        put(to, patches.len() as u32)?;
        for (at, buffer, within) in patches {
            put(to, at)?;
            put(to, buffer)?;
            to.write_all(&within.to_le_bytes())?;
        }
        to.flush()?;

        let mut status = [0; 4];
        self.answers.read_exact(&mut status)?;
        match u32::from_le_bytes(status) {
            0 => {}
            1 => return Err(io::Error::other(format!("{kernel}: there is no such kernel"))),
            _ => return Err(io::Error::other(format!("{kernel}: its arguments are not {} bytes", bytes.len()))),
        }
        let mut back = Vec::new();
        for buffer in buffers {
            let len = match buffer {
                Buffer::In(_) => continue,
                Buffer::Out(len) => *len,
                Buffer::InOut(bytes) => bytes.len(),
            };
            let mut bytes = vec![0; len];
            self.answers.read_exact(&mut bytes)?;
            back.push(bytes);
        }
        Ok(back)
    }
}

impl Drop for KernelHost {
    fn drop(&mut self) {
        // Every answer has been read; an error here has no consequence.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn put(to: &mut impl Write, number: u32) -> io::Result<()> {
    to.write_all(&number.to_le_bytes())
}

/// The folder of the programs. The build script runs once per process.
fn folder() -> io::Result<&'static Path> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = FOLDER.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let script = root.join("tools/kernel-host/build.sh");
        match Command::new(&script).status() {
            Ok(status) if status.success() => {
                let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
                Ok(target.join("kernel-host"))
            }
            Ok(status) => Err(format!("tools/kernel-host/build.sh failed ({status})")),
            Err(error) => Err(format!("tools/kernel-host/build.sh: {error}")),
        }
    });
    made.as_deref().map_err(|error| io::Error::other(error.clone()))
}
