//! The machine code of the GPU kernels: assembled from the PTX with one pinned assembler that needs neither GPU nor driver,
//! and checked against the PTX.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    graph::Outcome,
    ptx::{Digest, find_in_venv, one, read, write},
};

/// The chips that get machine code; `crates/swath-cuda/src/kernel_code.rs` says which others run it. Those of 8.9 have none of
/// their own: it would differ from that of 8.6 in three of 47 kernels, and there hardly.
const CHIPS: [&str; 6] = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"];
/// The assembler's version. Its major decides which drivers load the code: all of CUDA 12.0 or newer.
const ASSEMBLER: &str = "release 12.9, V12.9.86";
/// Archives are made once and unpacked on every machine, and unpacking is as fast at all levels.
const LEVEL: i32 = 22;

/// The code of all modules for one chip, by name.
type Modules = BTreeMap<String, Vec<u8>>;

/// Assembles the files of `kernels/cubin/` whose PTX changed.
pub fn build(kernels: &Path, ptx: &BTreeMap<String, String>) -> Outcome {
    let assembler = find_assembler().map_err(one)?;
    let folder = kernels.join("cubin");
    fs::create_dir_all(&folder).map_err(|error| one(format!("{}: {error}", folder.display())))?;
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let chip = path.file_stem().is_some_and(|stem| CHIPS.iter().any(|chip| stem == *chip));
        if path.extension().is_some_and(|extension| extension == "zst") && !chip {
            let _ = fs::remove_file(path);
        }
    }
    let listed = read(&folder.join("MANIFEST.toml")).unwrap_or_default();
    let current = |name: &str| {
        let ptx = ptx.get(name).is_some_and(|ptx| listed.contains(&entry(name, ptx)));
        ptx && listed.contains(&assembler_line())
    };
    let mut archives: BTreeMap<&str, Modules> = BTreeMap::new();
    for chip in CHIPS {
        let mut modules = stored(&folder, chip).unwrap_or_default();
        if !listed.contains(&section(chip, &pack(&modules))) {
            modules.clear();
        }
        modules.retain(|name, _| current(name));
        archives.insert(chip, modules);
    }
    let missing = |(chip, name): &(&str, &String)| !archives.get(chip).is_some_and(|have| have.contains_key(*name));
    let jobs: Vec<(&str, &String)> = pairs(ptx).into_iter().filter(missing).collect();
    let mut faults = Vec::new();
    let made = on_all_cores(&jobs, |(chip, name)| assemble(&assembler, kernels, chip, name));
    for ((chip, name), made) in jobs.iter().zip(made) {
        match made {
            Ok(code) => {
                archives.entry(chip).or_default().insert((*name).clone(), code);
            }
            Err(fault) => faults.push(fault),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let packed = on_all_cores(&CHIPS, |chip| archives.get(chip).map(pack).unwrap_or_default());
    let mut total = 0;
    for (chip, archive) in CHIPS.iter().zip(&packed) {
        let path = folder.join(format!("{chip}.zst"));
        // Another version of zstd may pack the same code into other bytes: the file need not change then.
        if unpacked(&path).ok().as_ref() != Some(archive) {
            let bytes = compress(archive)?;
            fs::write(&path, &bytes).map_err(|error| one(format!("{}: {error}", path.display())))?;
        }
        total += fs::metadata(&path).map_or(0, |metadata| metadata.len());
    }
    write(&folder.join("MANIFEST.toml"), &manifest(ptx, &packed))?;
    let units = CHIPS.len() * ptx.len();
    Ok(format!("{} of {units} assembled for {} chips, {total} bytes packed", jobs.len(), CHIPS.len()))
}

/// Fails where the code is not of this PTX, by digest: needs nothing but the files.
pub fn compare_digests(kernels: &Path, ptx: &BTreeMap<String, String>) -> Result<(), Vec<String>> {
    let folder = kernels.join("cubin");
    let listed = read(&folder.join("MANIFEST.toml"))?;
    let mut faults = Vec::new();
    if !listed.contains(&assembler_line()) {
        faults.push(format!("kernels/cubin was not made by ptxas {ASSEMBLER}: run `cargo xtask ptx`"));
    }
    for (name, _) in ptx.iter().filter(|(name, text)| !listed.contains(&entry(name, text))) {
        let known = listed.contains(&format!("\n{name} = "));
        let why = if known { "the PTX has changed since it was assembled" } else { "no machine code" };
        faults.push(format!("{name}: {why}: run `cargo xtask ptx`"));
    }
    for chip in CHIPS {
        let archive = unpacked(&folder.join(format!("{chip}.zst")))?;
        if !listed.contains(&section(chip, &archive)) {
            faults.push(format!("kernels/cubin/{chip}.zst is not what MANIFEST.toml lists: run `cargo xtask ptx`"));
        }
        if !stored(&folder, chip)?.keys().eq(ptx.keys()) {
            faults.push(format!("kernels/cubin/{chip}.zst has other modules than kernels/ptx: run `cargo xtask ptx`"));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Assembles everything again and compares it byte by byte with what is stored.
pub fn check(kernels: &Path, ptx: &BTreeMap<String, String>) -> Outcome {
    let assembler = find_assembler().map_err(one)?;
    let folder = kernels.join("cubin");
    let mut archives = BTreeMap::new();
    for chip in CHIPS {
        archives.insert(chip, stored(&folder, chip)?);
    }
    let jobs = pairs(ptx);
    let found = on_all_cores(&jobs, |(chip, name)| {
        let made = assemble(&assembler, kernels, chip, name)?;
        if archives.get(chip).and_then(|modules| modules.get(*name)) == Some(&made) {
            return Ok(());
        }
        Err(format!("{name} in kernels/cubin/{chip}.zst is not what ptxas makes: run `cargo xtask ptx`"))
    });
    let faults: Vec<String> = found.into_iter().filter_map(Result::err).collect();
    if faults.is_empty() { Ok(format!("{} pieces of machine code", jobs.len())) } else { Err(faults) }
}

/// Every chip with every kernel, those that take longest first, so that cores end together.
fn pairs(ptx: &BTreeMap<String, String>) -> Vec<(&'static str, &String)> {
    let mut names: Vec<(&String, usize)> = ptx.iter().map(|(name, text)| (name, text.len())).collect();
    names.sort_by_key(|(_, len)| std::cmp::Reverse(*len));
    names.iter().flat_map(|(name, _)| CHIPS.map(|chip| (chip, *name))).collect()
}

/// Runs `work` on all jobs with all cores. Returns the results in the order of the jobs.
pub fn on_all_cores<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some((at, job)) = jobs.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = work(job);
                    if let Ok(mut done) = done.lock() {
                        done.push((at, result));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The assembler: where `SWATH_PTXAS` says, or in the virtual environment.
pub fn find_assembler() -> Result<PathBuf, String> {
    let named = std::env::var_os("SWATH_PTXAS").map(PathBuf::from);
    let found = named.or_else(|| find_in_venv("nvidia/cuda_nvcc/bin/ptxas"));
    let path = found.ok_or("no ptxas: install tools/requirements-test.txt into .venv, or set SWATH_PTXAS to it")?;
    let fault = |error: std::io::Error| format!("{}: {error}", path.display());
    let version = Command::new(&path).arg("--version").output().map_err(fault)?;
    let version = String::from_utf8_lossy(&version.stdout);
    if !version.contains(ASSEMBLER) {
        return Err(format!("{} is not ptxas {ASSEMBLER}, the pinned one", path.display()));
    }
    Ok(path)
}

/// Assembles one kernel file for one chip.
fn assemble(assembler: &Path, kernels: &Path, chip: &str, name: &str) -> Result<Vec<u8>, String> {
    let source = kernels.join("ptx").join(format!("{name}.ptx"));
    let target = std::env::temp_dir().join(format!("swath-{}-{chip}-{name}.cubin", std::process::id()));
    let run = Command::new(assembler).arg(format!("-arch={chip}")).arg(source).arg("-o").arg(&target).output();
    let run = run.map_err(|error| format!("{}: {error}", assembler.display()))?;
    let made = fs::read(&target);
    let _ = fs::remove_file(&target);
    if !run.status.success() {
        return Err(format!("{name} for {chip}: {}", String::from_utf8_lossy(&run.stderr).trim()));
    }
    made.map_err(|error| format!("{name} for {chip}: {error}"))
}

/// An archive before compression, as `crates/swath-cuda/src/kernel_code.rs` reads it: lines of names and lengths, an empty line, then
/// the modules in that order, each at a multiple of eight bytes.
fn pack(modules: &Modules) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, code) in modules {
        archive.extend_from_slice(format!("{name} {}\n", code.len()).as_bytes());
    }
    archive.push(b'\n');
    for code in modules.values() {
        archive.resize(archive.len().next_multiple_of(8), 0);
        archive.extend_from_slice(code);
    }
    archive
}

fn unpack(archive: &[u8]) -> Option<Modules> {
    let end = archive.windows(2).position(|pair| pair == b"\n\n")? + 2;
    let index = std::str::from_utf8(archive.get(..end)?).ok()?;
    let mut modules = Modules::new();
    let mut start = end;
    for line in index.lines().filter(|line| !line.is_empty()) {
        let (name, len) = line.split_once(' ')?;
        start = start.checked_next_multiple_of(8)?;
        let code = archive.get(start..start.checked_add(len.parse().ok()?)?)?;
        start += code.len();
        modules.insert(name.to_owned(), code.to_vec());
    }
    (start == archive.len()).then_some(modules)
}

fn compress(archive: &[u8]) -> Result<Vec<u8>, Vec<String>> {
    let mut packed = vec![0; zstd_safe::compress_bound(archive.len())];
    let len = zstd_safe::compress(&mut packed[..], archive, LEVEL);
    packed.truncate(len.map_err(|code| one(zstd_safe::get_error_name(code)))?);
    Ok(packed)
}

/// A stored archive without its compression.
fn unpacked(path: &Path) -> Result<Vec<u8>, Vec<String>> {
    let packed = fs::read(path).map_err(|error| one(format!("{}: {error}", path.display())))?;
    let len = zstd_safe::get_frame_content_size(&packed).ok().flatten().filter(|len| *len < 64 << 20);
    let mut archive = vec![0; len.ok_or_else(|| one(format!("{} does not tell its length", path.display())))? as usize];
    let unpacked = zstd_safe::decompress(&mut archive[..], &packed);
    unpacked.map_err(|code| one(format!("{}: {}", path.display(), zstd_safe::get_error_name(code))))?;
    Ok(archive)
}

/// The modules of a stored archive.
fn stored(folder: &Path, chip: &str) -> Result<Modules, Vec<String>> {
    let path = folder.join(format!("{chip}.zst"));
    unpack(&unpacked(&path)?).ok_or_else(|| one(format!("{} is not an archive of machine code", path.display())))
}

fn manifest(ptx: &BTreeMap<String, String>, archives: &[Vec<u8>]) -> String {
    let mut text = format!(
        "# What the machine code was made of and with; written by `cargo xtask ptx`. Digests are FNV-1a of 128 bits: under \
         [ptx]\n# of each PTX file, `code` of an archive before compression.\n{}\n[ptx]\n",
        assembler_line()
    );
    for (name, ptx) in ptx {
        text.push_str(entry(name, ptx).trim_start());
    }
    for (chip, archive) in CHIPS.iter().zip(archives) {
        text.push_str(&section(chip, archive));
    }
    text
}

fn assembler_line() -> String {
    format!("\nassembler = \"ptxas, {ASSEMBLER}\"\n")
}

/// What the manifest says of the PTX that one module was made of.
fn entry(name: &str, ptx: &str) -> String {
    let mut digest = Digest::new();
    digest.add(ptx);
    format!("\n{name} = \"{}\"\n", digest.finish())
}

/// What the manifest says of one archive.
fn section(chip: &str, archive: &[u8]) -> String {
    let mut digest = Digest::new();
    digest.add_bytes(archive);
    format!("\n[{chip}]\ncode = \"{}\"\nlen = {}\n", digest.finish(), archive.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx;

    #[test]
    fn the_machine_code_is_of_this_ptx() {
        let kernels = ptx::kernels();
        assert_eq!(compare_digests(&kernels, &ptx::stored(&kernels).unwrap()), Ok(()));
    }

    #[test]
    fn ptx_that_changed_without_its_machine_code_is_found() {
        let kernels = ptx::kernels();
        let mut files = ptx::stored(&kernels).unwrap();
        files.get_mut("inflate").unwrap().push_str("// changed\n");
        let faults = compare_digests(&kernels, &files).unwrap_err();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].starts_with("inflate: the PTX has changed"), "{faults:?}");
        files.remove("inflate");
        files.insert("new".into(), String::new());
        let faults = compare_digests(&kernels, &files).unwrap_err();
        assert!(faults[0].starts_with("new: no machine code"), "{faults:?}");
        assert_eq!(faults.len(), 1 + CHIPS.len(), "{faults:?}");
    }

    #[test]
    fn archives_come_out_as_they_went_in() {
        let modules: Modules = [("a", 0), ("bc", 1), ("d", 8), ("e", 13)]
            .map(|(name, len)| (name.to_owned(), vec![7; len]))
            .into_iter()
            .collect();
        let archive = pack(&modules);
        assert_eq!(unpack(&archive), Some(modules));
        for cut in 0..archive.len() {
            assert_eq!(unpack(&archive[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn no_machine_shows_in_the_code() {
        let kernels = ptx::kernels();
        for chip in CHIPS {
            for (name, code) in stored(&kernels.join("cubin"), chip).unwrap() {
                let names = |word: &[u8]| code.windows(word.len()).any(|bytes| bytes == word);
                assert!(!names(b"/tmp/") && !names(b"/home/") && !names(b".ptx"), "{name} for {chip}");
            }
        }
    }
}
