//! Measures what the library's choices are made by, and writes it into the file that they read.

use crate::arguments::{clear, in_file, progress, say};
use crate::cell::{Method, Pattern, Wait};
use crate::error::{BenchError, Result};
use crate::machine;
use crate::predict::parts;
use crate::raw;
use crate::report::micros;
use crate::run::{Options, bench};
use crate::series::{Report, size};
use crate::stats::nanos;
use pageferry::choose::{Arrived, Filled, HostCosts, HostName, MessageCost, Nanos, Placement, host_file};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What `host calibrate` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Calibration {
    /// Write to this file instead of the one that the library reads
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write a machine file of this host instead: clock, caches and memory, for `pageferry run --machine FILE`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "print"])]
    machine: Option<PathBuf>,
    /// Print what would be written, and write nothing
    #[arg(long)]
    print: bool,
}

/// The day of the calendar that a time since 1970 lies in, as YYYY-MM-DD.
fn day(since: Duration) -> String {
    // Days of years that begin in March, so that the leap day is the last.
    let days = (since.as_secs() / 86_400) as i64 + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + later)
}

/// The day in Greenwich.
pub(crate) fn today() -> String {
    day(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

impl Calibration {
    /// Measures and writes. `peer`: the arguments with which this program calls [`crate::PeerArguments::run`].
    pub fn run(&self, peer: Vec<OsString>) -> Result<()> {
        if let Some(path) = &self.machine {
            let text = machine::file(&today(), may_be_realtime())?;
            write(path, &text).map_err(|error| in_file(path, &error))?;
            return say(&format!("{}: a machine file of this host\n", path.display()));
        }
        let path = match &self.output {
            Some(path) => path.clone(),
            None => host_file().ok_or_else(|| {
                BenchError::Usage(
                    "neither PAGEFERRY_HOST nor HOME says where the file is: use --output".to_owned(),
                )
            })?,
        };
        let costs = calibrate(peer)?;
        let text = toml::to_string(&costs).expect("plain data can be written as TOML");
        if self.print {
            return say(&text);
        }
        write(&path, &text).map_err(|error| in_file(&path, &error))?;
        say(&summary(&costs, &path))
    }
}

/// Whole or not at all.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    fs::write(&beside, text).and_then(|()| fs::rename(&beside, path)).inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })
}

fn summary(costs: &HostCosts, path: &Path) -> String {
    use core::fmt::Write as _;
    let mut text = format!("{}: {}, Linux {}\n", path.display(), costs.host.cpu, costs.host.kernel);
    for message in costs.messages.iter().filter(|message| message.filled == Filled::Anew) {
        let MessageCost { bytes, arrived, copy, loan, donate, .. } = message;
        let _ = writeln!(
            text,
            "{}, {arrived:?}: copy {} us, loan {} us, donation {} us",
            size(*bytes as usize),
            micros(copy.median),
            micros(loan.median),
            micros(donate.median),
        );
    }
    text
}

/// Whether this user may have realtime processes.
fn may_be_realtime() -> bool {
    raw::realtime(true).and_then(|()| raw::realtime(false)).is_ok()
}

fn calibrate(peer: Vec<OsString>) -> Result<HostCosts> {
    // Where this user may, other programs are kept off the CPUs during a turn.
    let realtime = may_be_realtime();
    let messages = Options {
        realtime,
        methods: vec![Method::Loan, Method::Donate, Method::CopyBuffer],
        patterns: vec![Pattern::Untouched, Pattern::Read, Pattern::Refilled],
        waits: vec![Wait::Spin],
        ..Options::new(peer.clone()).quick()
    };
    let report = bench(&messages, &mut progress)?;
    let others = Options {
        realtime,
        methods: vec![Method::Loan],
        sizes: vec![1 << 20],
        patterns: vec![Pattern::Untouched, Pattern::Refilled, Pattern::AllPages],
        waits: Wait::ALL.to_vec(),
        ..Options::new(peer).quick()
    };
    let others = bench(&others, &mut progress)?;
    clear();
    let built_in = HostCosts::built_in();
    let (page, looks) = (written_page(&others), spin(&others));
    let mut source = "host calibrate".to_owned();
    if page.is_none() || looks.is_none() {
        source += "; a written page and the time to look before sleeping as built in, for want of two CPUs";
    }
    let costs = HostCosts {
        host: HostName {
            cpu: report.surroundings.cpu.clone(),
            kernel: report.surroundings.kernel.clone(),
            date: today(),
            source,
        },
        written_page: page.unwrap_or(built_in.written_page),
        spin: looks.unwrap_or(built_in.spin),
        max_inline_bytes: built_in.max_inline_bytes,
        messages: message_costs(&report),
        primitives: parts::measure(&[64 << 10, 1 << 20, 4 << 20], realtime, &mut |_| ())?,
    };
    match costs.messages.is_empty() {
        false => Ok(costs),
        true => Err(BenchError::Usage(format!("nothing could be measured: {}", report.notes.join("; ")))),
    }
}

/// What a page costs that the receiver writes: what comes to a message of which it writes all.
fn written_page(report: &Report) -> Option<Nanos> {
    let bytes = 1 << 20;
    let written = report.series(Method::Loan, bytes, Pattern::AllPages, Wait::Spin)?;
    let read = report.series(Method::Loan, bytes, Pattern::Refilled, Wait::Spin)?;
    let pages = (bytes / 4096) as f64;
    nanos(
        &written
            .nanos
            .iter()
            .zip(&read.nanos)
            .map(|(written, read)| ((written - read) / pages).max(0.0))
            .collect::<Vec<_>>(),
    )
}

/// To look for as long as sleeping costs is never worse than twice the best.
fn spin(report: &Report) -> Option<Nanos> {
    let of = |wait| report.series(Method::Floor, 1 << 20, Pattern::Untouched, wait);
    let (slept, spun) = (of(Wait::Sleep)?, of(Wait::Spin)?);
    // A message is two hand-overs.
    nanos(
        &slept
            .nanos
            .iter()
            .zip(&spun.nanos)
            .map(|(slept, spun)| ((slept - spun) / 2.0).max(0.0))
            .collect::<Vec<_>>(),
    )
}

fn message_costs(report: &Report) -> Vec<MessageCost> {
    let placement = if report.is_far() == Some(false) { Placement::Near } else { Placement::Far };
    let situations = [
        (Pattern::Untouched, Arrived::Untouched, Filled::Before),
        // Filling costs all ways the same, so what is left is what the untouched message costs.
        (Pattern::Untouched, Arrived::Untouched, Filled::Anew),
        (Pattern::Read, Arrived::Touched, Filled::Before),
        (Pattern::Refilled, Arrived::Touched, Filled::Anew),
    ];
    let mut sizes: Vec<_> = report.series.iter().map(|series| series.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut costs = Vec::new();
    for (pattern, arrived, filled) in situations {
        for &bytes in &sizes {
            let of = |method| nanos(&report.series(method, bytes, pattern, Wait::Spin)?.nanos);
            if let (Some(copy), Some(loan)) = (of(Method::CopyBuffer), of(Method::Loan)) {
                let donate = of(Method::Donate).unwrap_or(loan);
                costs.push(MessageCost {
                    bytes: bytes as u64,
                    arrived,
                    filled,
                    placement,
                    copy,
                    loan,
                    donate,
                });
            }
        }
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_798_761_599, "2026-12-31"),
            (1_798_761_600, "2027-01-01"),
        ] {
            assert_eq!(day(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn the_file_is_whole() {
        let folder = std::env::temp_dir().join(format!("pageferry-bench-{}", std::process::id()));
        let path = folder.join("deep/host.toml");
        write(&path, "one").unwrap();
        write(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }
}
