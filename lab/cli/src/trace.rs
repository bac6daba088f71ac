//! `pageferry trace`.

use crate::args::{Trace, TraceCommand, TraceRecord, TraceShow};
use crate::progress;
use crate::show::print_json;
use crate::terminal::{print, table, tell};
use pageferry_lab::output::PendingFile;
use pageferry_lab::workloads::machines_that_fit;
use pageferry_lab::{LabError, input, nearest, text};
use pageferry_trace::{Architecture, BundledTrace, Kind, Reader, Rules, Summary, bundled};
use serde::Serialize;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

/// Records a trace or shows one.
pub(crate) fn trace(options: &Trace) -> Result<ExitCode, LabError> {
    match &options.command {
        TraceCommand::Record(options) => record(options),
        TraceCommand::Show(options) => show(options),
    }
}

#[cfg(unix)]
fn record(options: &TraceRecord) -> Result<ExitCode, LabError> {
    use pageferry_trace::capture::{self, Capture};
    let environment = options.environment.iter().map(|setting| match setting.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => {
            let problem = format!("`{setting}`, expected NAME=VALUE");
            Err(LabError::Input { file: "--env".to_owned(), problem })
        }
    });
    let capture = Capture {
        command: options.command.clone(),
        architecture: options.arch.as_deref().and_then(Architecture::named),
        environment: environment.collect::<Result<_, _>>()?,
        rules: Rules { reset_every: options.reset_every, ..Rules::STANDARD },
    };
    // Before the work: whether its first trace can be kept.
    PendingFile::check(&options.out)?;
    let files = RefCell::new(Vec::new());
    let open = |thread| {
        let file = PendingFile::create(&of_thread(&options.out, thread)).map_err(io::Error::other)?;
        files.borrow_mut().push(Rc::new(RefCell::new(file)));
        Ok(SharedFile(files.borrow()[thread - 1].clone()))
    };
    let bar = progress::steps(None);
    let recorded = capture::record(&capture, open, |references| bar.set_position(references));
    bar.finish_and_clear();
    let recorded = recorded.map_err(|error| LabError::Input {
        file: format!("{:?}", options.command[0]),
        problem: error.to_string(),
    })?;
    for file in files.into_inner() {
        let file = Rc::into_inner(file).expect("the recording is over").into_inner();
        file.commit()?;
    }
    // Standard output is the command's.
    let grouped = |number: u64| text::grouped(number as i64);
    for (totals, thread) in recorded.threads.iter().zip(1..) {
        tell(&format!(
            "{}: {} references, {} of them instructions, as {} records; {} system calls",
            of_thread(&options.out, thread).display(),
            grouped(totals.references()),
            grouped(totals.instructions),
            grouped(totals.records),
            grouped(totals.calls),
        ));
    }
    if recorded.threads.len() > 1 {
        tell("each thread has a trace of its own, in the order in which they began");
    }
    if let [first, more @ ..] = &recorded.children[..] {
        let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        tell(&format!(
            "the command started process {first}{more}, whose references are in no trace: record what it runs by itself"
        ));
    }
    if recorded.became_another {
        tell("the command became another program, whose references are in no trace: record that by itself");
    }
    if !recorded.status.success() {
        tell(&format!("the command itself ended with {}", recorded.status));
    }
    tell(&how_to_run(&options.out));
    Ok(ExitCode::SUCCESS)
}

/// How the trace is run, on a machine that has all addresses of its program.
#[cfg(unix)]
fn how_to_run(trace: &Path) -> String {
    let run = |more: &str| format!("run it: pageferry run replay{more} --set trace={}", trace.display());
    let fitting = trace.to_str().and_then(|name| machines_that_fit(name).ok());
    match fitting.as_deref() {
        // What cannot be replayed says why when it is.
        None => run(""),
        Some([]) => "no built-in machine has all addresses that it refers to".to_owned(),
        Some(machines) if machines.contains(&"ppc603") => run(""),
        Some(machines) => {
            let machine = if machines.contains(&"today") { "today" } else { machines[0] };
            format!(
                "{} (it fits {})",
                run(&format!(" --machine {machine} --kernel sf_buf")),
                machines.join(", ")
            )
        }
    }
}

/// The file of a thread: `ls.pft`, `ls-2.pft`, `ls-3.pft`.
#[cfg(unix)]
fn of_thread(first: &Path, thread: usize) -> PathBuf {
    if thread == 1 {
        return first.to_owned();
    }
    let mut name = first.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{thread}"));
    if let Some(extension) = first.extension() {
        name.push(".");
        name.push(extension);
    }
    first.with_file_name(name)
}

/// A trace on its way, which is committed when all are whole.
#[cfg(unix)]
struct SharedFile(Rc<RefCell<PendingFile>>);

#[cfg(unix)]
impl Write for SharedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().flush()
    }
}

#[cfg(not(unix))]
fn record(_: &TraceRecord) -> Result<ExitCode, LabError> {
    let problem = "programs are recorded on Unix hosts only".to_owned();
    Err(LabError::Input { file: "trace record".to_owned(), problem })
}

/// What a trace says of itself at its beginning and its end: to know it, nothing is unpacked.
#[derive(Serialize)]
struct TraceHead {
    architecture: String,
    command: String,
    recorder: String,
    references: u64,
    instructions: u64,
    loads: u64,
    stores: u64,
    records: u64,
    references_per_record: f64,
    bytes: usize,
    bits_per_record: f64,
    reset_every: u32,
}

impl TraceHead {
    fn of(reader: &Reader<'_>, bytes: usize) -> TraceHead {
        let (header, totals) = (reader.header().clone(), *reader.totals());
        let records = totals.records.max(1) as f64;
        TraceHead {
            architecture: header.architecture,
            command: header.command.join(" "),
            recorder: header.recorder,
            references: totals.references(),
            instructions: totals.instructions,
            loads: totals.loads,
            stores: totals.stores,
            records: totals.records,
            references_per_record: totals.references() as f64 / records,
            bytes,
            bits_per_record: 8.0 * bytes as f64 / records,
            reset_every: header.rules.reset_every,
        }
    }
}

/// What is shown of a trace.
#[derive(Serialize)]
struct TraceSummary {
    #[serde(flatten)]
    head: TraceHead,
    code_pages: usize,
    data_pages: usize,
    /// Misses of fetches and of data, by processor.
    tlb_misses: BTreeMap<&'static str, [u64; 2]>,
    system_calls: BTreeMap<String, u64>,
}

/// A reader of the trace `name`, at its beginning.
fn open<'a>(name: &str, bytes: &'a [u8]) -> Result<Reader<'a>, LabError> {
    Reader::new(bytes, u64::MAX).map_err(|error| wrong(name, &error))
}

fn wrong(name: &str, error: &pageferry_trace::TraceError) -> LabError {
    LabError::Input { file: name.to_owned(), problem: error.to_string() }
}

impl TraceSummary {
    fn of(name: &str, bytes: &[u8]) -> Result<TraceSummary, LabError> {
        let mut reader = open(name, bytes)?;
        let head = TraceHead::of(&reader, bytes.len());
        let has_calls = reader.totals().calls > 0;
        let summary = Summary::of(&mut reader).map_err(|error| wrong(name, &error))?;
        let mut system_calls = BTreeMap::new();
        let architecture = Architecture::named(&head.architecture);
        if has_calls {
            let mut reader = open(name, bytes)?;
            while let Some(record) = reader.next().transpose().map_err(|error| wrong(name, &error))? {
                if record.kind == Kind::Call {
                    let number = reader.call().number;
                    let name = architecture.and_then(|a| a.call_name(number));
                    let name = name.map_or_else(|| format!("number {number}"), str::to_owned);
                    *system_calls.entry(name).or_insert(0) += 1;
                }
            }
        }
        Ok(TraceSummary {
            head,
            code_pages: summary.code_pages,
            data_pages: summary.data_pages,
            tlb_misses: summary.tlbs.iter().map(|tlb| (tlb.name, [tlb.instruction, tlb.data])).collect(),
            system_calls,
        })
    }
}

fn show(options: &TraceShow) -> Result<ExitCode, LabError> {
    let Some(name) = &options.trace else { return list(options.json) };
    let bytes = find(name)?;
    let shown = TraceSummary::of(name, &bytes)?;
    if options.json {
        return print_json(&shown);
    }
    let grouped = |number: u64| text::grouped(number as i64);
    let head = shown.head;
    let mut rows = vec![
        ("architecture", head.architecture),
        ("command", head.command),
        ("recorded by", head.recorder),
        ("references", grouped(head.references)),
        ("  instructions", grouped(head.instructions)),
        ("  loads", grouped(head.loads)),
        ("  stores", grouped(head.stores)),
        ("records", grouped(head.records)),
        ("references a record", format!("{:.1}", head.references_per_record)),
        ("packed", text::bytes(head.bytes as u64)),
        ("bits a record", format!("{:.2}", head.bits_per_record)),
        ("recorded anew every", format!("{} instructions", grouped(u64::from(head.reset_every)))),
        ("pages of code", grouped(shown.code_pages as u64)),
        ("pages of data", grouped(shown.data_pages as u64)),
    ];
    let about = [("603", "misses, TLBs of a 603"), ("604", "misses, TLBs of a 604")];
    for (processor, what) in about {
        let [code, data] = shown.tlb_misses[processor];
        rows.push((what, format!("{} code, {} data", grouped(code), grouped(data))));
    }
    let calls: Vec<_> = shown.system_calls.iter().map(|(name, count)| format!("{name} {count}")).collect();
    rows.push(("system calls", if calls.is_empty() { "none recorded".to_owned() } else { calls.join(", ") }));
    let rows: Vec<_> = rows.into_iter().map(|(what, value)| vec![what.to_owned(), value]).collect();
    print(&table(&["", name], &rows))?;
    Ok(ExitCode::SUCCESS)
}

/// All traces that are built in, by what stands at their beginnings: to unpack them takes ten seconds.
fn list(json: bool) -> Result<ExitCode, LabError> {
    let head = |trace: &BundledTrace| {
        Ok((trace.name, TraceHead::of(&open(trace.name, trace.bytes)?, trace.bytes.len())))
    };
    let shown = bundled().iter().map(head).collect::<Result<Vec<_>, LabError>>()?;
    if json {
        return print_json(&shown.into_iter().collect::<BTreeMap<_, _>>());
    }
    let row = |(name, head): &(&str, TraceHead)| {
        let mut row = vec![(*name).to_owned(), head.architecture.clone()];
        row.extend(
            [head.instructions, head.loads, head.stores, head.records].map(|n| text::grouped(n as i64)),
        );
        row.push(text::bytes(head.bytes as u64));
        row
    };
    let columns = ["trace", "of", ">instructions", ">loads", ">stores", ">records", ">packed"];
    print(&table(&columns, &shown.iter().map(row).collect::<Vec<_>>()))?;
    Ok(ExitCode::SUCCESS)
}

/// The bytes of a file, or of a trace that is built in.
fn find(name: &str) -> Result<Cow<'static, [u8]>, LabError> {
    if name.ends_with(".pft") || name.contains(std::path::MAIN_SEPARATOR) {
        return input::bytes(Path::new(name), input::MAX_RECORDED_BYTES).map(Cow::Owned);
    }
    if let Some(trace) = bundled().iter().find(|trace| trace.name == name) {
        return Ok(Cow::Borrowed(trace.bytes));
    }
    let known = || bundled().iter().map(|trace| trace.name);
    Err(LabError::Unknown {
        kind: "trace",
        name: name.to_owned(),
        nearest: nearest(name, known()).map(str::to_owned),
        known: known().map(str::to_owned).collect(),
    })
}
