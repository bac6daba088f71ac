//! `pageferry pipe`.

use crate::args::{Pipe, ReceiveWord, SendWord};
use crate::progress::bytes;
use crate::run::{chosen, counts, stack};
use crate::terminal::{self, print_all, table, tell};
use indicatif::HumanDuration;
use pageferry_lab::files::{KernelChoice, MachineChoice, PipeKindName};
use pageferry_lab::output::PendingFile;
use pageferry_lab::record::Law;
use pageferry_lab::workloads::stream::{Ends, ReceiveMode, SendMode, TransferReport, Ways, stream};
use pageferry_lab::{LabError, text};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

/// Sends a file or standard input through a modelled pipe.
pub(crate) fn pipe(options: &Pipe) -> Result<ExitCode, LabError> {
    let moves = options.send.is_some() || options.receive.is_some();
    let (machine, kernel) = if moves { ("pentium-pro", "uvm") } else { ("xeon-mp", "sf_buf") };
    let machine = options.machine.as_deref().unwrap_or(machine);
    let kernel = options.kernel.as_deref().unwrap_or(kernel);
    let (machine, kernel) = chosen(&options.settings, machine, kernel, "; the size of a write is --chunk")?;
    let ways = ways(options, &kernel)?;
    if options.chunk == 0 {
        let problem = "0, expected at least 1 byte in a write".to_owned();
        return Err(LabError::Setting { key: "--chunk".into(), problem });
    }
    let (input, input_name, expected_bytes) = open(options.input.as_deref())?;
    let to_stdout = options.output == Path::new("-");
    let output = Output::create(&options.output)?;
    let bar = bytes(expected_bytes);
    let shown = bar.clone();
    let ends = Ends {
        input,
        input_name,
        expected_bytes,
        output: Box::new(output.clone()),
        output_name: if to_stdout { "standard output".into() } else { options.output.clone() },
        progress: Box::new(move |done| shown.set_position(done)),
    };
    let result = stream(&machine, &kernel, options.chunk as usize, ways, ends);
    bar.finish_and_clear();
    let moved = result?;
    let broken = Law::broken(&moved.laws);
    if !broken.is_empty() {
        let run = format!("pipe on {} under {}", moved.machine, moved.kernel);
        return Err(LabError::Law { run, broken });
    }
    output.commit()?;
    let told = if options.json {
        serde_json::to_string_pretty(&moved).expect("plain data") + "\n"
    } else {
        cost(&moved, &machine)
    };
    if to_stdout {
        tell(told.trim_end());
    } else {
        print_all(&told)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How the bytes are to go.
fn ways(options: &Pipe, kernel: &KernelChoice) -> Result<Ways, LabError> {
    let key = if options.send.is_some() { "--send" } else { "--receive" };
    let chosen = options.send.is_some() || options.receive.is_some();
    if chosen && kernel.file.pipe.kind.value != PipeKindName::Socket {
        let name = &kernel.name;
        let problem =
            format!("the pipes of kernel `{name}` are not sockets, expected a kernel where they are: `uvm`");
        return Err(LabError::Setting { key: key.into(), problem });
    }
    let send = options.send.map_or(SendMode::Copy, SendWord::mode);
    let receive = options.receive.map_or(ReceiveMode::Copy, ReceiveWord::mode);
    Ok(Ways { send, receive })
}

type Input = (Box<dyn Read>, PathBuf, Option<u64>);

fn open(path: Option<&Path>) -> Result<Input, LabError> {
    let Some(path) = path.filter(|path| *path != Path::new("-")) else {
        return Ok((Box::new(io::stdin()), "standard input".into(), None));
    };
    let refuse = |e| LabError::io("read", path, e);
    let file = File::open(path).map_err(refuse)?;
    let meta = file.metadata().map_err(refuse)?;
    if meta.is_dir() {
        return Err(refuse(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory")));
    }
    // Devices and pipes have no length, and some files of the kernel say 0.
    let len = Some(meta.len()).filter(|len| meta.is_file() && *len > 0);
    Ok((Box::new(file), path.to_owned(), len))
}

/// Where the bytes go: a file that appears when it is complete, or standard output.
#[derive(Clone)]
struct Output(Rc<RefCell<Option<PendingFile>>>);

impl Output {
    fn create(path: &Path) -> Result<Output, LabError> {
        let to_stdout = path == Path::new("-");
        if to_stdout && terminal::stdout_is_closed() {
            let error = io::Error::new(io::ErrorKind::BrokenPipe, "it is closed");
            return Err(LabError::io("write", "standard output", error));
        }
        let file = if to_stdout { None } else { Some(PendingFile::create(path)?) };
        Ok(Output(Rc::new(RefCell::new(file))))
    }

    fn commit(&self) -> Result<(), LabError> {
        self.0.take().map_or(Ok(()), PendingFile::commit)
    }
}

impl Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut *self.0.borrow_mut() {
            Some(file) => file.write(buf),
            None => io::stdout().write(buf),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match &mut *self.0.borrow_mut() {
            Some(file) => file.flush(),
            None => io::stdout().flush(),
        }
    }
}

fn cost(moved: &TransferReport, machine: &MachineChoice) -> String {
    let style = terminal::stdout();
    let count = |name: &str| moved.counters.get(name).copied().unwrap_or(0);
    let mut out = format!(
        "{}  {} through a pipe on {} under {}\n\n",
        style.strong("identical"),
        text::bytes(moved.len_bytes),
        machine.config.title,
        moved.kernel
    );
    let grouped = |name: &str| text::grouped(count(name) as i64);
    let (local, remote) = (grouped("tlb_invalidations_local"), grouped("tlb_invalidations_remote_issued"));
    let rows = [
        ("modelled time", text::seconds(moved.elapsed_us / 1e6)),
        ("bandwidth", format!("{} MB/s", text::number(moved.bandwidth_mb_s))),
        ("copies of each byte", format!("{:.2}", moved.copies_per_byte)),
        ("TLB invalidations", format!("{local} local, {remote} remote issued")),
        ("SHA-256", moved.sha256.clone()),
    ];
    for (name, value) in rows {
        out += &format!("{name:<22}{value}\n");
    }
    out += &format!("\n{}", stack(&moved.cycles));
    out += &format!("\n{}", table(&["counter", ">events"], &counts(&moved.counters)));
    let host = Duration::from_secs_f64(moved.host_ms / 1e3);
    let took = if host < Duration::from_secs(60) {
        text::seconds(host.as_secs_f64())
    } else {
        HumanDuration(host).to_string()
    };
    out + &style.faint(&format!("\n{took} on this host\n"))
}
