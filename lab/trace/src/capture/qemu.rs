//! Recording under QEMU's user-mode emulators: the plugin `plugin/refs.c`, compiled here and now, reports every
//! reference and system call. It fails without a C compiler or QEMU, or when the program starts a thread.

use super::watched::{Capture, CaptureError, CaptureReport, ProgressMeter, WatchedProgram, header};
use crate::architecture::Architecture;
use crate::recorder::Recorder;
use std::io::{self, BufRead as _, Read, Write};
use std::path::Path;
use std::process::Command;

const PLUGIN: &str = include_str!("../../plugin/refs.c");

const FETCH: u64 = 0;
const LOAD: u64 = 1;
const STORE: u64 = 2;
const CALL: u64 = 3;
const RETURN: u64 = 4;
const SECOND_THREAD: u64 = 5;
const END: u64 = 6;

pub(super) fn record(
    capture: &Capture,
    architecture: &'static Architecture,
    program: &Path,
    out: impl Write,
    progress: impl FnMut(u64),
) -> Result<CaptureReport, CaptureError> {
    let folder = tempfile::tempdir().map_err(CaptureError::io("make a temporary folder"))?;
    let plugin = compile(folder.path())?;
    let tool = emulator(architecture);
    let recorder = format!("{} with refs.c", version(tool)?);
    let mut recorder = Recorder::new(out, &header(capture, architecture, recorder))
        .map_err(CaptureError::io("write the trace"))?;
    let mut watched = WatchedProgram::start(tool, "qemu-user", capture, |command, descriptor| {
        // What would differ from host to host or from run to run is given.
        command.args(["-seed", "1", "-r", "5.10.0", "-s", "8388608"]);
        if let Some(processor) = architecture.processor {
            command.args(["-cpu", processor]);
        }
        if let Some(libraries) = architecture.libraries.filter(|path| Path::new(path).is_dir()) {
            command.args(["-L", libraries]);
        }
        command.arg("-plugin").arg(format!("{},fd={descriptor}", plugin.display()));
        command.arg("-0").arg(&capture.command[0]).arg(program).args(&capture.command[1..]);
    })?;
    // With the first words the plugin is loaded, and its file need not wait for the end. An error shows again below.
    let _ = watched.references.fill_buf();
    drop(folder);
    let mut told = ProgressMeter::new(progress);
    let mut call = 0;
    loop {
        let word = match word(&mut watched.references) {
            Ok(Some(word)) => word,
            Ok(None) => {
                return Err(watched.fail("ended without the plugin's end mark".into(), recorder.references()));
            }
            Err(error) => return Err(watched.fail(format!("cannot be read: {error}"), recorder.references())),
        };
        let (address, bytes) = (word & ((1 << 57) - 1), (word >> 57 & 15) as u32 + 1);
        let done = match word >> 61 {
            FETCH => {
                told.tell(recorder.references());
                recorder.fetch(address, bytes)
            }
            LOAD => recorder.load(address, bytes),
            STORE => recorder.store(address, bytes),
            CALL => {
                let mut arguments = [0; 6];
                if !words(&mut watched.references, &mut arguments) {
                    return Err(watched.fail("ended within a system call".into(), recorder.references()));
                }
                call = address as u32;
                // A process that is waited for is named by its number.
                if architecture.call_name(call) == Some("wait4") {
                    arguments[0] = 0;
                }
                recorder.call(call, arguments.map(|a| architecture.register(a)))
            }
            RETURN => {
                let mut result = [0];
                if !words(&mut watched.references, &mut result) {
                    return Err(watched.fail("ended within a system call".into(), recorder.references()));
                }
                let result = if architecture.tells_process(call) { 0 } else { result[0] as i64 };
                recorder.returned(architecture.result(result))
            }
            SECOND_THREAD => {
                let problem = "reports a second thread, expected a program of one".to_owned();
                return Err(watched.fail(problem, recorder.references()));
            }
            END if recorder.references() == 0 => {
                return Err(watched.fail("reports nothing, expected references".into(), 0));
            }
            END => return watched.end(vec![recorder]),
            other => {
                let problem = format!("reports a word of kind {other}, expected 0 to {END}");
                return Err(watched.fail(problem, recorder.references()));
            }
        };
        if let Err(error) = done {
            return Err(watched.give_up(error));
        }
    }
}

/// The next word, or nothing at the end.
fn word(references: &mut impl Read) -> io::Result<Option<u64>> {
    let mut bytes = [0; 8];
    match references.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(u64::from_ne_bytes(bytes))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn words(references: &mut impl Read, words: &mut [u64]) -> bool {
    words.iter_mut().all(|at| word(references).ok().flatten().map(|word| *at = word).is_some())
}

/// Compiles the plugin into `folder`.
fn compile(folder: &Path) -> Result<std::path::PathBuf, CaptureError> {
    let (source, plugin) = (folder.join("refs.c"), folder.join("refs.so"));
    std::fs::write(&source, PLUGIN).map_err(CaptureError::io("write the plugin"))?;
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(&compiler)
        .args(["-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-o"])
        .args([&plugin, &source])
        .output();
    let output = output.map_err(|error| CaptureError::Tool {
        tool: compiler.clone(),
        package: "a C compiler",
        error,
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(CaptureError::Plugin { compiler, said });
    }
    Ok(plugin)
}

/// The emulator's first line about itself, without the distribution's part.
fn version(tool: &'static str) -> Result<String, CaptureError> {
    let output = Command::new(tool).arg("--version").output();
    let output =
        output.map_err(|error| CaptureError::Tool { tool: tool.to_owned(), package: "qemu-user", error })?;
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().next().unwrap_or_default();
    Ok(line.split(" (").next().unwrap_or_default().to_owned())
}

fn emulator(architecture: &Architecture) -> &'static str {
    match architecture.name {
        "ppc" => "qemu-ppc",
        "ppc64" => "qemu-ppc64",
        "ppc64le" => "qemu-ppc64le",
        "i386" => "qemu-i386",
        "x86_64" => "qemu-x86_64",
        "arm" => "qemu-arm",
        "aarch64" => "qemu-aarch64",
        "mips" => "qemu-mips",
        "mipsel" => "qemu-mipsel",
        "m68k" => "qemu-m68k",
        "sparc" => "qemu-sparc",
        "riscv32" => "qemu-riscv32",
        "riscv64" => "qemu-riscv64",
        _ => "qemu-s390x",
    }
}
