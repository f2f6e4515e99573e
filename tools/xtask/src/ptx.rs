//! The PTX of the GPU kernels: made with one pinned compiler that needs neither GPU nor driver, and checked against its
//! sources.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    cubin::{self, on_all_cores},
    graph::Outcome,
};
use nvrtc::Compiler;

/// What the PTX is for: the oldest chip that kernels are written for. Newer ones take it too.
const TARGET: &str = "compute_70";
/// The compiler's version decides the PTX ISA, and that the oldest driver.
const COMPILER: (i32, i32) = (12, 0);

/// Makes the files of `kernels/ptx/` whose sources changed, and those of `kernels/cubin/` whose PTX changed.
pub fn build() -> Outcome {
    let kernels = kernels();
    find_compiler().map_err(one)?;
    let units = units(&kernels)?;
    let folder = kernels.join("ptx");
    fs::create_dir_all(&folder).map_err(|error| one(format!("{}: {error}", folder.display())))?;
    for old in names(&folder, "ptx")? {
        if !units.iter().any(|unit| unit.name == old) {
            let _ = fs::remove_file(folder.join(format!("{old}.ptx")));
        }
    }
    let listed = fs::read_to_string(folder.join("MANIFEST.toml")).unwrap_or_default();
    let stored = stored(&kernels)?;
    let (mut files, mut faults, mut made) = (stored.clone(), Vec::new(), 0);
    files.retain(|name, ptx| {
        let unit = units.iter().find(|unit| unit.name == *name);
        unit.is_some_and(|unit| section(unit, ptx).is_ok_and(|section| listed.contains(&section)))
    });
    for unit in &units {
        if files.contains_key(&unit.name) {
            continue;
        }
        match usual_form(unit, stored.get(&unit.name)) {
            Ok(ptx) => {
                made += 1;
                write(&folder.join(format!("{}.ptx", unit.name)), &ptx)?;
                files.insert(unit.name.clone(), ptx);
                write(&folder.join("MANIFEST.toml"), &manifest(&units, &files)?)?;
            }
            Err(fault) => faults.push(fault),
        }
    }
    write(&folder.join("MANIFEST.toml"), &manifest(&units, &files)?)?;
    if !faults.is_empty() {
        return Err(faults);
    }
    let assembled = cubin::build(&kernels, &files)?;
    Ok(format!("{made} of {} kernels compiled for {TARGET}; {assembled}", files.len()))
}

/// Fails where `kernels/ptx/` is not what its sources make, or `kernels/cubin/` is not what the PTX makes: by digest, and byte
/// by byte where the compiler and the assembler are at hand.
pub fn check() -> Outcome {
    let kernels = kernels();
    let units = units(&kernels)?;
    let files = stored(&kernels)?;
    compare_digests(&kernels, &units, &files)?;
    cubin::compare_digests(&kernels, &files)?;
    match find_compiler().and_then(|_| cubin::find_assembler()) {
        Ok(_) => {}
        Err(why) if std::env::var_os("CI").is_some_and(|ci| ci == "true") => {
            return Err(one(format!("the kernels cannot be rebuilt for comparison: {why}")));
        }
        Err(why) => return Ok(format!("{} kernels agree by digest; not rebuilt ({why})", units.len())),
    }
    let found = on_all_cores(&units, |unit| {
        let stored = files.get(&unit.name);
        for _ in 0..TRIES {
            if stored == Some(&compile_apart(unit)?) {
                return Ok(());
            }
        }
        Err(format!("kernels/ptx/{}.ptx is not what the compiler makes: run `cargo xtask ptx`", unit.name))
    });
    let faults: Vec<String> = found.into_iter().filter_map(Result::err).collect();
    if !faults.is_empty() {
        return Err(faults);
    }
    let assembled = cubin::check(&kernels, &files)?;
    Ok(format!("{} kernels and {assembled} rebuilt, all the same", units.len()))
}

/// How often a kernel is compiled before its PTX counts as changed. The form that is stored comes out one time in five
/// or oftener.
const TRIES: usize = 60;

/// The form of a unit's PTX that the compiler makes most often, or the stored form if the compiler makes that one too: an
/// edit that changes no instruction then changes no PTX. Whether the compiler joins neighbouring loads depends on addresses
/// of its heap, so that a large kernel comes out in one of several forms, all of them right.
fn usual_form(unit: &TranslationUnit, stored: Option<&String>) -> Result<String, String> {
    if std::env::var_os("SWATH_PTX_ONCE").is_some() {
        return compile_apart(unit);
    }
    let mut forms: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..TRIES {
        let made = compile_apart(unit)?;
        if stored == Some(&made) {
            return Ok(made);
        }
        let seen = forms.entry(made.clone()).or_default();
        *seen += 1;
        // Four alike make the usual form; while there is a stored form to meet, it gets more chances.
        if *seen == if stored.is_some() { 20 } else { 4 } {
            return Ok(made);
        }
    }
    let usual = forms.into_iter().max_by_key(|(_, seen)| *seen);
    usual.map(|(made, _)| made).ok_or_else(|| format!("{}: not compiled", unit.name))
}

/// Compiles a unit in a process of its own, so with a heap of its own.
fn compile_apart(unit: &TranslationUnit) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = std::process::Command::new(program)
        .args(["ptx", "--unit", &unit.name])
        .output()
        .map_err(|error| format!("{}: {error}", unit.name))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{}: the PTX is not text", unit.name))
}

/// Prints the PTX of one unit: what [`compile_apart`] starts.
pub fn print_unit(name: &str) -> Result<(), Vec<String>> {
    let unit = units(&kernels())?.into_iter().find(|unit| unit.name == name);
    let unit = unit.ok_or_else(|| one(format!("there is no kernel {name}")))?;
    print!("{}", find_compiler().and_then(|compiler| compiler.compile(&unit)).map_err(one)?);
    Ok(())
}

fn compare_digests(
    kernels: &Path,
    units: &[TranslationUnit],
    files: &BTreeMap<String, String>,
) -> Result<(), Vec<String>> {
    let mut faults = Vec::new();
    for unit in units.iter().filter(|unit| !files.contains_key(&unit.name)) {
        faults.push(format!("{}.cu has no PTX: run `cargo xtask ptx`", unit.name));
    }
    for name in files.keys().filter(|name| !units.iter().any(|unit| unit.name == **name)) {
        faults.push(format!("kernels/ptx/{name}.ptx has no source any more: run `cargo xtask ptx`"));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let path = kernels.join("ptx/MANIFEST.toml");
    let stored = read(&path)?;
    let sections = |text: &str| -> Vec<String> { text.split("\n\n").map(|part| part.trim().to_owned()).collect() };
    let (stored, wanted) = (sections(&stored), sections(&manifest(units, files)?));
    for section in wanted.iter().filter(|section| !stored.contains(section)) {
        let name = section.lines().next().unwrap_or_default();
        faults.push(format!("{name}: its sources or its PTX have changed since MANIFEST.toml: run `cargo xtask ptx`"));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// One entry file (`kernels/<folder>/<name>.cu`) with everything it includes.
struct TranslationUnit {
    name: String,
    /// The files in the order of their first inclusion, each once: the compiler sees neither folders nor paths.
    text: String,
    digest: String,
}

/// Every entry file, sorted by name. The PTX has the name of its entry file, so two folders must not share one.
fn units(kernels: &Path) -> Result<Vec<TranslationUnit>, Vec<String>> {
    let fault = |error: std::io::Error| one(format!("{}: {error}", kernels.display()));
    let mut entries = BTreeMap::new();
    for folder in fs::read_dir(kernels).map_err(fault)? {
        let folder = folder.map_err(fault)?;
        if !folder.file_type().map_err(fault)?.is_dir() {
            continue;
        }
        for name in names(&folder.path(), "cu")? {
            let path = Path::new(&folder.file_name()).join(format!("{name}.cu"));
            if let Some(other) = entries.insert(name, path.clone()) {
                return Err(one(format!("{} and {} would make the same PTX file", other.display(), path.display())));
            }
        }
    }
    entries.into_iter().map(|(name, path)| unit(kernels, name, path)).collect()
}

fn unit(kernels: &Path, name: String, entry: PathBuf) -> Result<TranslationUnit, Vec<String>> {
    let mut files = BTreeMap::new();
    let mut text = String::new();
    include(kernels, entry, &mut files, &mut text)?;
    let mut digest = Digest::new();
    for (path, source) in &files {
        digest.add(path);
        digest.add(source);
    }
    Ok(TranslationUnit { name, text, digest: digest.finish() })
}

/// Appends a file, with the included files in place of its `#include` lines. Includes name paths from the kernels' folder.
fn include(
    kernels: &Path,
    path: PathBuf,
    files: &mut BTreeMap<String, String>,
    text: &mut String,
) -> Result<(), Vec<String>> {
    let name = path.to_string_lossy().replace('\\', "/");
    if files.contains_key(&name) {
        return Ok(());
    }
    let source = read(&kernels.join(&path))?;
    files.insert(name.clone(), source.clone());
    text.push_str(&format!("#line 1 \"{name}\"\n"));
    for (number, line) in (1..).zip(source.lines()) {
        let included = line.trim().strip_prefix("#include \"").and_then(|rest| rest.split('"').next());
        if let Some(included) = included {
            if !stays_inside(Path::new(included)) {
                return Err(one(format!("{name}:{number}: includes have to be paths from the kernels' folder")));
            }
            include(kernels, PathBuf::from(included), files, text)?;
            text.push_str(&format!("#line {} \"{name}\"\n", number + 1));
        } else if line.trim() != "#pragma once" {
            text.push_str(line);
            text.push('\n');
        } else {
            text.push('\n');
        }
    }
    Ok(())
}

/// Whether a path goes down only: neither `..` nor a root.
fn stays_inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

/// FNV-1a of 128 bits: it has to tell a file from its last version, not from a forgery.
pub struct Digest(u128);

impl Digest {
    pub fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    /// Adds a text and an end, so that two texts are not one.
    pub fn add(&mut self, text: &str) {
        self.add_bytes(text.as_bytes());
        self.add_bytes(&[0]);
    }

    pub fn add_bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    pub fn finish(&self) -> String {
        format!("{:032x}", self.0)
    }
}

fn manifest(units: &[TranslationUnit], files: &BTreeMap<String, String>) -> Result<String, Vec<String>> {
    let mut text =
        "# What the PTX was made of and with; written by `cargo xtask ptx`. Digests are FNV-1a of 128 bits:\n\
                    # `sources` of the entry file and all that it includes, `ptx` of the file made of them.\n"
            .to_owned();
    for unit in units {
        if let Some(ptx) = files.get(&unit.name) {
            text.push_str(&section(unit, ptx)?);
        }
    }
    Ok(text)
}

/// Returns the section of the manifest about one unit.
fn section(unit: &TranslationUnit, ptx: &str) -> Result<String, Vec<String>> {
    let word = |start: &str| {
        let line = ptx.lines().find_map(|line| line.strip_prefix(start));
        line.map(str::trim).ok_or_else(|| one(format!("{}.ptx has no line `{start}`", unit.name)))
    };
    let mut digest = Digest::new();
    digest.add(ptx);
    Ok(format!(
        "\n[{}]\nsources = \"{}\"\nptx = \"{}\"\ncompiler = \"NVRTC, {}\"\nisa = \"{}\"\ntarget = \"{}\"\n",
        unit.name,
        unit.digest,
        digest.finish(),
        word("// Cuda compilation tools, ")?,
        word(".version ")?,
        word(".target ")?,
    ))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn kernels() -> PathBuf {
    root().join("crates/swath-cuda/kernels")
}

pub fn stored(kernels: &Path) -> Result<BTreeMap<String, String>, Vec<String>> {
    let folder = kernels.join("ptx");
    names(&folder, "ptx")?
        .into_iter()
        .map(|name| Ok((name.clone(), read(&folder.join(format!("{name}.ptx")))?)))
        .collect()
}

/// The names of a folder's files with this ending, without it, sorted.
fn names(folder: &Path, ending: &str) -> Result<Vec<String>, Vec<String>> {
    let fault = |error: std::io::Error| one(format!("{}: {error}", folder.display()));
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(fault)? {
        let path = entry.map_err(fault)?.path();
        if path.extension().is_some_and(|extension| extension == ending)
            && let Some(stem) = path.file_stem()
        {
            names.push(stem.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// A text with plain line ends: a checkout may have turned them.
pub fn read(path: &Path) -> Result<String, Vec<String>> {
    let text = fs::read_to_string(path).map_err(|error| one(format!("{}: {error}", path.display())))?;
    Ok(text.replace("\r\n", "\n"))
}

pub fn write(path: &Path, text: &str) -> Result<(), Vec<String>> {
    fs::write(path, text).map_err(|error| one(format!("{}: {error}", path.display())))
}

pub fn one(fault: impl Into<String>) -> Vec<String> {
    vec![fault.into()]
}

/// The folder of the compiler's wheel: where `SWATH_NVRTC` says, or in the virtual environment.
fn find_compiler() -> Result<Compiler, String> {
    if let Some(folder) = std::env::var_os("SWATH_NVRTC") {
        return Compiler::open(Path::new(&folder));
    }
    let library = find_in_venv(&format!("nvidia/cuda_nvrtc/lib/{}", nvrtc::LIBRARY));
    match library.as_deref().and_then(Path::parent) {
        Some(folder) => Compiler::open(folder),
        None => {
            Err("no NVRTC: install tools/requirements-test.txt into .venv, or set SWATH_NVRTC to its folder".into())
        }
    }
}

/// A file of a package in the virtual environment.
pub fn find_in_venv(file: &str) -> Option<PathBuf> {
    let venv = std::env::var_os("VENV").map_or_else(|| root().join(".venv"), PathBuf::from);
    let pythons = fs::read_dir(venv.join("lib")).into_iter().flatten().flatten();
    pythons.map(|python| python.path().join("site-packages").join(file)).find(|path| path.is_file())
}

/// The one place that calls the compiler's library.
mod nvrtc {
    #![allow(unsafe_code, reason = "a C library, loaded when it is there")]

    use std::{
        ffi::{CStr, CString, c_char, c_int, c_void},
        path::Path,
        ptr,
    };

    use libloading::{Library, Symbol};

    use super::{COMPILER, TARGET, TranslationUnit};

    pub const LIBRARY: &str = "libnvrtc.so.12";
    const BUILTINS: &str = "libnvrtc-builtins.so.12.0";

    type Program = *mut c_void;
    type Status = c_int;

    pub struct Compiler {
        library: Library,
        // It is found by name when the first program is compiled, so it has to be there all the while.
        _builtins: Library,
    }

    /// Fails for PTX that calls undefined functions: only a driver would find that otherwise.
    pub fn whole(ptx: String) -> Result<String, String> {
        match ptx.lines().find(|line| line.starts_with(".extern .func")) {
            Some(line) => Err(format!("it calls a function that this compiler does not have: {line}")),
            None => Ok(ptx),
        }
    }

    impl Compiler {
        pub fn open(folder: &Path) -> Result<Self, String> {
            let load = |name: &str| {
                let path = folder.join(name);
                // SAFETY: the libraries' initialisers are NVIDIA's and have no preconditions.
                unsafe { Library::new(&path) }.map_err(|error| format!("{}: {error}", path.display()))
            };
            let compiler = Self { _builtins: load(BUILTINS)?, library: load(LIBRARY)? };
            let version = compiler.version()?;
            if version != COMPILER {
                let (major, minor) = COMPILER;
                return Err(format!("NVRTC {}.{} where {major}.{minor} is the pinned one", version.0, version.1));
            }
            Ok(compiler)
        }

        /// A function of the library.
        ///
        /// # Safety
        /// `T` has to be its type, as in nvrtc.h.
        unsafe fn function<T>(&self, name: &str) -> Result<Symbol<'_, T>, String> {
            // SAFETY: the caller vouches for the type.
            unsafe { self.library.get(name) }.map_err(|error| format!("NVRTC: {error}"))
        }

        fn version(&self) -> Result<(i32, i32), String> {
            let (mut major, mut minor) = (0, 0);
            // SAFETY: `nvrtcResult nvrtcVersion(int*, int*)`, with two numbers to write to.
            unsafe {
                let version =
                    self.function::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status>("nvrtcVersion")?;
                version(&raw mut major, &raw mut minor);
            }
            Ok((major, minor))
        }

        /// The PTX of a unit, or the messages of the compiler.
        pub fn compile(&self, unit: &TranslationUnit) -> Result<String, String> {
            type Create = unsafe extern "C" fn(
                *mut Program,
                *const c_char,
                *const c_char,
                c_int,
                *const *const c_char,
                *const *const c_char,
            ) -> Status;
            let text = |text: &str| CString::new(text).map_err(|_| format!("{}: a zero byte in its source", unit.name));
            let (source, name) = (text(&unit.text)?, text(&format!("{}.cu", unit.name))?);
            let options = [text(&format!("--gpu-architecture={TARGET}"))?, text("--std=c++17")?];
            let pointers = options.each_ref().map(|option| option.as_ptr());
            let mut program: Program = ptr::null_mut();
            // SAFETY: the types are those of nvrtc.h; all texts end with zero and outlive the calls; `program` is made
            // by the first call, used only where that succeeded, and destroyed once.
            unsafe {
                let create = self.function::<Create>("nvrtcCreateProgram")?;
                let status = create(&raw mut program, source.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null());
                if status != 0 {
                    return Err(format!("{}: nvrtcCreateProgram fails with {status}", unit.name));
                }
                let made = self.compile_program(program, &pointers);
                let destroy = self.function::<unsafe extern "C" fn(*mut Program) -> Status>("nvrtcDestroyProgram")?;
                destroy(&raw mut program);
                made.and_then(whole).map_err(|why| format!("{}: {why}", unit.name))
            }
        }

        /// # Safety
        /// `program` is one of this library's, and the options are texts that end with zero.
        unsafe fn compile_program(&self, program: Program, options: &[*const c_char]) -> Result<String, String> {
            // SAFETY: the types are those of nvrtc.h, the arguments the caller's.
            unsafe {
                type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status;
                let compile = self.function::<Compile>("nvrtcCompileProgram")?;
                let status = compile(program, options.len() as c_int, options.as_ptr());
                if status != 0 {
                    return Err(self.text_of(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")?);
                }
                self.text_of(program, "nvrtcGetPTXSize", "nvrtcGetPTX")
            }
        }

        /// # Safety
        /// `program` is one of this library's, and the two functions tell the length of a text and the text.
        unsafe fn text_of(&self, program: Program, length: &str, get: &str) -> Result<String, String> {
            // SAFETY: the buffer is as long as the library says, the zero at the end included.
            unsafe {
                let length_of = self.function::<unsafe extern "C" fn(Program, *mut usize) -> Status>(length)?;
                let get = self.function::<unsafe extern "C" fn(Program, *mut c_char) -> Status>(get)?;
                let mut len = 0;
                let mut status = length_of(program, &raw mut len);
                let mut bytes = vec![0_u8; len + 1];
                if status == 0 {
                    status = get(program, bytes.as_mut_ptr().cast());
                }
                if status != 0 {
                    return Err(format!("{length} fails with {status}"));
                }
                let text = CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned());
                text.map_err(|error| error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ptx_is_of_these_sources() {
        let kernels = kernels();
        let (units, files) = (units(&kernels).unwrap(), stored(&kernels).unwrap());
        assert_eq!(compare_digests(&kernels, &units, &files), Ok(()));
    }

    #[test]
    fn no_machine_shows_in_the_ptx() {
        for (name, ptx) in stored(&kernels()).unwrap() {
            let paths =
                ptx.lines().filter(|line| line.contains(".file") || line.contains("/home") || line.contains("/tmp"));
            assert_eq!(paths.collect::<Vec<_>>(), [""; 0], "{name}");
        }
    }

    #[test]
    fn includes_are_spelled_out_once() {
        let unit = unit(&kernels(), "place".into(), "place/place.cu".into()).unwrap();
        assert!(!unit.text.contains("#include") && !unit.text.contains("#pragma once"));
        assert_eq!(unit.text.matches("#line 1 \"core/base.cuh\"").count(), 1);
    }

    #[test]
    fn ptx_that_calls_undefined_functions_is_refused() {
        assert!(nvrtc::whole(".version 8.0\n.func there(\n)".into()).is_ok());
        let fault = nvrtc::whole(".version 8.0\n.extern .func (.param .b32 func_retval0) _Z5thingj\n(".into());
        assert!(fault.is_err_and(|fault| fault.contains("_Z5thingj")));
    }

    #[test]
    fn paths_stay_inside() {
        assert!(stays_inside(Path::new("place/place.cuh")));
        assert!(!stays_inside(Path::new("../src/lib.rs")));
        assert!(!stays_inside(Path::new("/place/place.cuh")));
    }

    #[test]
    fn digests_distinguish_texts() {
        let digest = |texts: &[&str]| {
            let mut digest = Digest::new();
            texts.iter().for_each(|text| digest.add(text));
            digest.finish()
        };
        assert_eq!(digest(&[]), "6c62272e07bb014262b821756295c58d");
        assert_ne!(digest(&["ab"]), digest(&["a", "b"]));
        assert_ne!(digest(&["a"]), digest(&["b"]));
    }
}
