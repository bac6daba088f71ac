//! What the command line says.

use crate::numbers::{
    depth, jobs, minutes, modelled_length, modelled_time, parts, percentage, repeats, seeds, share, steps,
};
use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use pageferry_lab::workloads::stream::{ReceiveMode, SendMode};
use pageferry_trace::{ARCHITECTURES, Rules};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Move pages, not bytes, on modelled machines: rerun published experiments, or send your own data through.
#[derive(Debug, Parser)]
#[command(name = "pageferry", version = env!("PAGEFERRY_VERSION"), propagate_version = true)]
#[command(after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What a block of a disk's image may have.
const BLOCK_BYTES: [&str; 8] = ["512", "1024", "2048", "4096", "8192", "16384", "32768", "65536"];

const EXIT_CODES: &str = "Exit codes:
  0    all is well
  1    a run broke a law, such as a byte that arrived changed or the use of a stale translation; of `diff`, something
       moved
  2    bad usage or input, or an output that cannot be written
  130  interrupted by Ctrl-C; other signals are 128 and their number, 143 for SIGTERM

Try:
  pageferry reproduce --quick
  pageferry explain loan
  pageferry explain refill
  pageferry run bw-pipe --machine xeon-up --kernel sf_buf
  pageferry pipe FILE -o COPY --machine opteron-mp --kernel original";

const DIFF_EXIT_CODES: &str = "Exit codes:
  0    nothing moved by more than the threshold
  1    something did, or a run broke a law
  2    bad usage or input, or no run is in both, or an output that cannot be written";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run experiments side by side and write a report
    Reproduce(Reproduce),
    /// Write the report of a folder of records: what `reproduce` left, or runs that `run --json` printed
    Report(Report),
    /// Compare two folders of results, or two runs: what moved, and in which causes the cycles moved
    #[command(after_help = DIFF_EXIT_CODES)]
    Diff(Diff),
    /// Run one experiment on one machine under one kernel
    Run(Run),
    /// Run one experiment over the product of machines, kernels, values and seeds
    Sweep(Sweep),
    /// Change every constant a little, one at a time, and tell what of the results hangs on which
    Sensitivity(Sensitivity),
    /// List machines, show one with the source of every constant, or show in which constants two differ
    Machines(ShowConstants),
    /// List kernels, show one with the source of every value, or show in which values two differ
    Kernels(ShowConstants),
    /// List experiments, or show one
    Experiments(Show),
    /// Send a file or standard input through a modelled pipe, and say what it cost
    Pipe(Pipe),
    /// Run the file and pipe calls of a real program again, as `strace -f` recorded them, and say what they cost
    Replay(Replay),
    /// Serve a directory over HTTP from a modelled machine, to real clients
    Serve(Serve),
    /// Tell what a mechanism does, step by step, with the counters of a small run beside each step
    Explain(Explain),
    /// Play scenarios: what processes do to shared, copied and lent memory, and what each must then see
    Scenarios(Scenarios),
    /// Run random programs of many processes beside a copying model, with every law checked at every step
    Soak(Soak),
    /// Record what a real program fetches, loads and stores, or show such a trace
    Trace(Trace),
    /// Make a disk image with a file system from a directory, look into one, take files out, or check it
    Disk(Disk),
    /// What the library for Linux finds on this host
    #[cfg(target_os = "linux")]
    Host(Host),
    /// Print what completes commands and options in a shell
    Completions(Completions),
    /// Print the manual page of the program, or of a command, for `man -l -`
    Man(Man),
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: ShellWord,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ShellWord {
    /// For `source`, or a file in ~/.local/share/bash-completion/completions
    Bash,
    /// For a file `_pageferry` in a folder of `fpath`
    Zsh,
    /// For a file in ~/.config/fish/completions
    Fish,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The command, such as `run` or `host bench`; the program if absent
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Reproduce {
    /// Experiments to run: names (see `pageferry experiments`), or files that end in .toml; all if none is named
    #[arg(value_name = "NAME|FILE")]
    pub(crate) names: Vec<String>,
    /// Shorter runs: a look at everything in seconds
    #[arg(long)]
    pub(crate) quick: bool,
    /// Where the report and the numbers go: a folder that is new, empty, or has results in it. Those of a full run are
    /// replaced by another full run only
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub(crate) out: PathBuf,
    /// Go on with the finished runs of one that was interrupted
    #[arg(long)]
    pub(crate) resume: bool,
    /// Replace the results of a full run also by those of some experiments, or of quick runs
    #[arg(long)]
    pub(crate) force: bool,
    /// Host threads; 0 means one for each core. The numbers do not depend on it
    #[arg(long, short, value_name = "N", default_value_t = 0, value_parser = jobs)]
    pub(crate) jobs: usize,
    /// What payloads are made from, and what no real machine holds fixed in runs that are repeated
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Make each run so many times, each with a seed of its own and perturbed; if absent, as often as the experiment's
    /// file says (quick runs: once)
    #[arg(long, value_name = "N", value_parser = repeats)]
    pub(crate) repeat: Option<u64>,
    /// Fail if a published result comes out otherwise than the paper's file says: each that differs has its reason
    /// there, and no other. The same for choices that the kernel makes worse than the best. For those who change a
    /// machine or a kernel
    #[arg(long, conflicts_with = "quick")]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Where the records are: results.json with inputs.json beside it, or a file for each run. An experiment, a machine
    /// or a kernel NAME of one's own is read from NAME.toml there
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// Where the report and the numbers go: a folder that is new, empty, or has results in it
    #[arg(long, value_name = "DIR", default_value = "report")]
    pub(crate) out: PathBuf,
    /// Replace also the results of a full run
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// What was: a folder of results, as `reproduce` leaves it or `report` reads it, or the file of one run, as
    /// `run --json` prints it
    #[arg(value_name = "A")]
    pub(crate) first: PathBuf,
    /// What is. Runs are matched by experiment, machine, kernel and settings; where A and B have one run each, of one
    /// experiment, these are compared whatever they ran on
    #[arg(value_name = "B")]
    pub(crate) second: PathBuf,
    /// Tell what moved by more than this
    #[arg(long, value_name = "PERCENT", default_value = "3%", value_parser = percentage)]
    pub(crate) threshold: f64,
    /// Look at every metric, and not only at those that the rules and curves of experiments name
    #[arg(long)]
    pub(crate) all: bool,
    /// Write what moved, the causes, and what is only in A or B to a table, all of it
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The experiment: a name (see `pageferry experiments`), or a file that ends in .toml
    #[arg(value_name = "NAME|FILE")]
    pub(crate) experiment: String,
    /// The machine: a name (see `pageferry machines`) or a file that ends in .toml; if absent, the first that the
    /// experiment names. `qemu-amd64` is the kernel on metal, under QEMU, with counts and without cycles
    #[arg(long, short, value_name = "M")]
    pub(crate) machine: Option<String>,
    /// The kernel: a name (see `pageferry kernels`) or a file that ends in .toml; if absent, the first that the
    /// experiment names
    #[arg(long, short, value_name = "K")]
    pub(crate) kernel: Option<String>,
    /// Change a parameter (total_bytes=1048576), a choice (send=loan), a machine's constant
    /// (machine.cpu.clock_mhz=3000) or a kernel's value (kernel.ephemeral.entries=6144)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
    /// What the payload, and a seeded schedule, are made from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Let the seed decide which CPU goes on, at every step: finds races; times mean nothing
    #[arg(long)]
    pub(crate) seeded_schedule: bool,
    /// Draw from the seed, too, what no real machine holds fixed: where the kernel's structures lie, which frames are
    /// free, the phase of the clock, what each interrupt takes. So is one run of several
    #[arg(long)]
    pub(crate) perturbed: bool,
    /// Make N such runs, with this seed, the next, and so on, and show medians and ranges
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = repeats)]
    #[arg(conflicts_with_all = ["trace", "seeded_schedule"])]
    pub(crate) repeat: u64,
    /// The experiment's short form
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write a trace in Perfetto's format, for ui.perfetto.dev: CPUs as tracks, causes as slices, processes and what is
    /// attached to them, what moves as arrows, curves of free frames, loans, ephemeral mappings and invalidations, and
    /// the parts of the run: boot, set-up, what is measured, the rest
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Begin the trace so long after the machine was switched on, in modelled time: 2ms, 500us, 1.5s; if absent, where
    /// the measured part begins
    #[arg(long, value_name = "TIME", requires = "trace", value_parser = modelled_time)]
    pub(crate) trace_from: Option<Duration>,
    /// Trace for so long, in modelled time; to the end of the run if absent
    #[arg(long, value_name = "TIME", requires = "trace", value_parser = modelled_length)]
    pub(crate) trace_for: Option<Duration>,
    /// Print one JSON object; of repeats a list of them
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = SWEEP_HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(subcommand_help_heading = "Of a sweep on several hosts", disable_help_subcommand = true)]
pub(crate) struct Sweep {
    #[command(subcommand)]
    pub(crate) command: Option<SweepCommand>,
    /// The experiment: a name (see `pageferry experiments`), or a file that ends in .toml
    #[arg(value_name = "EXPERIMENT", required = true)]
    pub(crate) experiment: Option<String>,
    /// Machines, with commas between: names or files that end in .toml; if absent, the first that the experiment names
    #[arg(long, short, value_name = "M,...")]
    pub(crate) machine: Option<String>,
    /// Kernels, with commas between: names or files that end in .toml; if absent, the first that the experiment names
    #[arg(long, short, value_name = "K,...")]
    pub(crate) kernel: Option<String>,
    /// Values that a setting takes in turn: words and numbers with commas between (send=copy,loan), equal steps
    /// (chunk_bytes=4K..256K:4K) or equal ratios (chunk_bytes=4K..256K:*2). K, M and G are powers of 1024. Of several
    /// such settings, each combination is run
    #[arg(long, value_name = "KEY=VALUES")]
    pub(crate) vary: Vec<String>,
    /// Change a setting in all runs, as for `run`; K, M and G after a number are powers of 1024
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
    /// Make each run so many times, each with a seed of its own: the first seed, the next, and so on. They differ in
    /// what no real machine holds fixed: see below
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = repeats)]
    pub(crate) repeat: u64,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// The experiment's short form
    #[arg(long)]
    pub(crate) quick: bool,
    /// What the table and the curves show; if absent, what the experiment is judged by first
    #[arg(long, value_name = "NAME")]
    pub(crate) metric: Option<String>,
    /// Where the records, the report, the curves and sweep.csv go: a folder that is new, empty, or has results in it
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Go on with the finished runs of one that was interrupted
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,
    /// Replace also the results of a full `reproduce`
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    /// Run nothing, and write parts of the sweep that other hosts can run: part-1.toml and so on, in a folder that is
    /// new, empty, or has a plan in it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "jobs"])]
    pub(crate) plan: Option<PathBuf>,
    /// In so many parts, or as many as there are runs if these are fewer
    #[arg(long, value_name = "N", default_value_t = 8, requires = "plan", value_parser = parts)]
    pub(crate) parts: u64,
    /// Host threads; 0 means one for each core. The numbers do not depend on it
    #[arg(long, short, value_name = "N", default_value_t = 0, value_parser = jobs)]
    pub(crate) jobs: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SweepCommand {
    /// Make the runs of parts that `--plan` wrote, and write their records beside them: of part-3.toml, part-3.jsonl
    Run(RunParts),
    /// Put the records of all parts together into what the sweep gives on one host; say which are missing or damaged
    Collect(Collect),
}

#[derive(Debug, Args)]
pub(crate) struct RunParts {
    /// The files of parts
    #[arg(value_name = "PART", required = true)]
    pub(crate) parts: Vec<PathBuf>,
    /// Host threads; 0 means one for each core. The numbers do not depend on it
    #[arg(long, short, value_name = "N", default_value_t = 0, value_parser = jobs)]
    pub(crate) jobs: usize,
}

#[derive(Debug, Args)]
pub(crate) struct Collect {
    /// The folder that `--plan` wrote, with the records of its parts
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Where the records, the report, the curves and sweep.csv go: a folder that is new, empty, or has results in it
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Replace also the results of a full `reproduce`
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
}

const SWEEP_HELP: &str = "What a repeat means:
  A run is a model: the same configuration and seed give the same numbers to the last digit. Of several repeats each
  has a seed of its own, which decides what no real machine holds fixed (where the kernel's structures lie in the
  caches, which frames are free, the phase of the clock, what each interrupt takes), the bytes of the payload, and
  where requests are drawn (web) the requests. Shown are the median and an interval that holds the true median in at
  least 93 of 100 such sets of repeats; of fewer than five repeats, their range.

Try:
  pageferry sweep pipe-sizes --machine xeon-mp,today --kernel original,sf_buf --vary chunk_bytes=4K..256K:*2
  pageferry sweep uvm-pipe --vary size_bytes=4K..64K:4K --vary send=copy,loan --out sweep
  pageferry sweep uvm-pipe --vary size_bytes=4K..64K:4K --vary send=copy,loan --plan parts --parts 4
  pageferry sweep run parts/part-3.toml       # on any host
  pageferry sweep collect parts --out sweep";

#[derive(Debug, Args)]
#[command(after_help = SENSITIVITY_HELP)]
pub(crate) struct Sensitivity {
    /// Experiments: names (see `pageferry experiments`), or files that end in .toml; if none is named, all that are
    /// judged by published results or have crossovers
    #[arg(value_name = "EXPERIMENT")]
    pub(crate) experiments: Vec<String>,
    /// Change constants only in the runs on these machines, with commas between
    #[arg(long, short, value_name = "M,...", value_delimiter = ',')]
    pub(crate) machine: Vec<String>,
    /// Change constants only in the runs under these kernels, with commas between
    #[arg(long, short, value_name = "K,...", value_delimiter = ',')]
    pub(crate) kernel: Vec<String>,
    /// Change only constants whose keys are as PATTERN says, in which a * stands for any characters: `cpu.*`,
    /// `machine.cache.L2.*`, `kernel.paths.vm.*`
    #[arg(long, value_name = "PATTERN")]
    pub(crate) key: Vec<String>,
    /// By how much, up and down
    #[arg(long, value_name = "PERCENT", default_value = "20%", value_parser = share)]
    pub(crate) by: f64,
    /// The experiments' short form: what is done anyway
    #[arg(long)]
    pub(crate) quick: bool,
    /// Runs as long as those of `reproduce`, each once
    #[arg(long, conflicts_with = "quick")]
    pub(crate) full: bool,
    /// Where sensitivity.csv, crossovers-range.csv and the figure go: a folder that is new, empty, or has results in it
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Go on with the finished runs of one that was interrupted
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,
    /// Host threads; 0 means one for each core. The numbers do not depend on it
    #[arg(long, short, value_name = "N", default_value_t = 0, value_parser = jobs)]
    pub(crate) jobs: usize,
}

const SENSITIVITY_HELP: &str = "What is saved:
  Runs are quick ones unless --full says otherwise. A constant that several kernels share is changed in all of them. It
  is assumed that a constant which moves no bit of a run upwards moves none downwards, and that none of a group matters
  which moves nothing when all of it is changed. How many runs there are at most is said before the first.

Try:
  pageferry sensitivity bw-pipe --machine today --by 10%
  pageferry sensitivity uvm-pipe --machine today --key 'machine.*' --out sensitivity";

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// What to show in full: a name, or a file that ends in .toml; a list if absent
    #[arg(value_name = "NAME|FILE")]
    pub(crate) name: Option<String>,
    /// Print JSON
    #[arg(long, conflicts_with = "toml")]
    pub(crate) json: bool,
    /// Print a file that loads again, with all that it extends: what `machines NAME` and `kernels NAME` do anyway
    #[arg(long, requires = "name")]
    pub(crate) toml: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowConstants {
    #[command(flatten)]
    pub(crate) show: Show,
    /// What differs between two, side by side with its sources: names, or files that end in .toml
    #[arg(long, num_args = 2, value_names = ["A", "B"], action = ArgAction::Set, conflicts_with_all = ["name", "toml"])]
    pub(crate) diff: Option<Vec<String>>,
    /// The least and the greatest that each number may be, in place of its source
    #[arg(long, requires = "name", conflicts_with_all = ["json", "toml"])]
    pub(crate) ranges: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SendWord {
    /// Copied into the kernel
    Copy,
    /// Whole pages are lent. The next write fills the same buffer: each page faults then, and is copied if it is still
    /// lent
    Loan,
    /// Whichever is cheaper, by call
    Auto,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ReceiveWord {
    /// Copied out of the kernel
    Copy,
    /// Whole pages become the reader's
    Transfer,
    /// Whichever is cheaper, by run of pages
    Auto,
}

impl SendWord {
    pub(crate) fn mode(self) -> SendMode {
        match self {
            SendWord::Copy => SendMode::Copy,
            SendWord::Loan => SendMode::Loan,
            SendWord::Auto => SendMode::Auto,
        }
    }
}

impl ReceiveWord {
    pub(crate) fn mode(self) -> ReceiveMode {
        match self {
            ReceiveWord::Copy => ReceiveMode::Copy,
            ReceiveWord::Transfer => ReceiveMode::Transfer,
            ReceiveWord::Auto => ReceiveMode::Auto,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Pipe {
    /// What to send; standard input if absent or `-`
    #[arg(value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Where it goes; `-` is standard output
    #[arg(long, short, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// The machine: a name (see `pageferry machines`) or a file that ends in .toml [default: xeon-mp; with --send or
    /// --receive pentium-pro]
    #[arg(long, short, value_name = "M")]
    pub(crate) machine: Option<String>,
    /// The kernel: a name (see `pageferry kernels`) or a file that ends in .toml [default: sf_buf; with --send or
    /// --receive uvm]
    #[arg(long, short, value_name = "K")]
    pub(crate) kernel: Option<String>,
    /// How bytes get into the pipe, under a kernel whose pipes are sockets
    #[arg(long, value_name = "HOW")]
    pub(crate) send: Option<SendWord>,
    /// How bytes get out of the pipe, under a kernel whose pipes are sockets
    #[arg(long, value_name = "HOW")]
    pub(crate) receive: Option<ReceiveWord>,
    /// Bytes in one write
    #[arg(long, value_name = "BYTES", default_value_t = 65536)]
    pub(crate) chunk: u32,
    /// Change a machine's constant or a kernel's value, as for `run`
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
    /// Print what it cost as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// What `strace -f -o FILE` wrote; `-e trace=%file,%desc,%process` is enough. `-y` and `-T` tell more
    #[arg(value_name = "FILE")]
    pub(crate) recording: PathBuf,
    /// Where files hold what they held: a folder with the paths of the recording below it. If absent, files hold what
    /// is made up
    #[arg(long, value_name = "DIR")]
    pub(crate) files: Option<PathBuf>,
    /// The machine: a name (see `pageferry machines`) or a file that ends in .toml
    #[arg(long, short, value_name = "M", default_value = "xeon-mp")]
    pub(crate) machine: String,
    /// The kernel: a name (see `pageferry kernels`) or a file that ends in .toml
    #[arg(long, short, value_name = "K", default_value = "sf_buf")]
    pub(crate) kernel: String,
    /// Change a machine's constant or a kernel's value, as for `run`
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
    /// Print what it cost as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// What to serve: the files in it and below it, as they are when the command begins
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// The port of 127.0.0.1 that clients connect to; 0 is any that is free
    #[arg(long, value_name = "N", required_unless_present = "tap")]
    pub(crate) port: Option<u16>,
    /// A TAP device of the host that is the other end of the machine's wire; the machine is at 10.0.0.2/24
    #[arg(long, value_name = "NAME", conflicts_with = "port")]
    pub(crate) tap: Option<String>,
    /// How files are sent: their pages are lent to the card until the client has them, or copied
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) send: SendWord,
    /// How uploads (PUT) are received: pages of the card become the server's and then the file's, or are copied
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) receive: ReceiveWord,
    /// Where uploads are written to when they are whole, made if it is not there; otherwise they end with the machine
    #[arg(long, value_name = "DIR")]
    pub(crate) uploads: Option<PathBuf>,
    /// Write a line for each request to the end of a file, in the Common Log Format, which the experiment `web` reads
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Write all frames on the machine's wire to a file that tshark and Wireshark read
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// The machine, which has a network card: a name (see `pageferry machines`) or a file that ends in .toml
    #[arg(long, short, value_name = "M", default_value = "today")]
    pub(crate) machine: String,
    /// The kernel: a name (see `pageferry kernels`) or a file that ends in .toml
    #[arg(long, short, value_name = "K", default_value = "uvm")]
    pub(crate) kernel: String,
    /// Change a machine's constant or a kernel's value, as for `run`
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
    /// Print what it cost as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The mechanism, such as loan, sf_buf, bat or refill; a list if absent
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The machine: a name (see `pageferry machines`) or a file that ends in .toml; if absent, one that suits the
    /// mechanism
    #[arg(long, short, value_name = "M", requires = "name")]
    pub(crate) machine: Option<String>,
    /// The kernel: a name (see `pageferry kernels`) or a file that ends in .toml; if absent, one that has the mechanism
    #[arg(long, short, value_name = "K", requires = "name")]
    pub(crate) kernel: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Soak {
    /// Steps in all
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = steps)]
    pub(crate) steps: u64,
    /// For so long instead
    #[arg(long, value_name = "MINUTES", conflicts_with = "steps", value_parser = minutes)]
    pub(crate) minutes: Option<u64>,
    /// What the programs and the schedules are made from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// The only machine to run on, NAME:CPUS for another number of CPUs; all of them in turn if absent
    #[arg(long, short, value_name = "M", value_parser = PossibleValuesParser::new(pageferry_soak::MACHINES))]
    pub(crate) machine: Option<String>,
    /// Where a seed decides which CPU goes on, let it be the one with the highest priority, which changes DEPTH - 1
    /// times in 1000 turns (PCT), and not any CPU at every turn
    #[arg(long, value_name = "DEPTH", value_parser = depth)]
    pub(crate) pct: Option<u32>,
    /// Host threads; 0 means one for each core. What is found does not depend on it
    #[arg(long, short, value_name = "N", default_value_t = 0, value_parser = jobs)]
    pub(crate) jobs: usize,
    /// Where a program that fails is kept
    #[arg(long, value_name = "FILE", default_value = "soak-failure.json")]
    pub(crate) keep: PathBuf,
    /// Run the program of this file again, and nothing else
    #[arg(long, value_name = "FILE", conflicts_with_all = ["steps", "minutes", "planted"])]
    pub(crate) replay: Option<PathBuf>,
    /// Plant each known defect in turn and see it caught
    #[arg(long, conflicts_with_all = ["minutes"])]
    pub(crate) planted: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Scenarios {
    /// Scenarios to play: names, or files that end in .toml; all if none is named
    #[arg(value_name = "NAME|FILE")]
    pub(crate) names: Vec<String>,
    /// The machine: a name (see `pageferry machines`) or a file that ends in .toml
    #[arg(long, short, value_name = "M", default_value = "xeon-mp")]
    pub(crate) machine: String,
    /// The kernel: a name (see `pageferry kernels`) or a file that ends in .toml
    #[arg(long, short, value_name = "K", default_value = "uvm-paging")]
    pub(crate) kernel: String,
    /// Play each also under so many seeded schedules
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = seeds)]
    pub(crate) seeds: u64,
    /// Let these give CPUs priorities, which change DEPTH - 1 times in 1000 turns (PCT), and not a turn each to any CPU
    #[arg(long, value_name = "DEPTH", requires = "seeds", value_parser = depth)]
    pub(crate) pct: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct Trace {
    #[command(subcommand)]
    pub(crate) command: TraceCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Run a program under QEMU or valgrind and record it
    Record(TraceRecord),
    /// Show what a trace holds and asks of a TLB; a line for each that is built in, if none is named
    Show(TraceShow),
}

#[derive(Debug, Args)]
pub(crate) struct TraceRecord {
    /// Where the trace goes
    #[arg(long, short, value_name = "FILE", default_value = "trace.pft")]
    pub(crate) out: PathBuf,
    /// What the program's architecture must be. Programs of the host's are recorded by valgrind, without system calls;
    /// others by QEMU
    #[arg(long, value_name = "A", value_parser = PossibleValuesParser::new(ARCHITECTURES.map(|a| a.name)))]
    pub(crate) arch: Option<String>,
    /// A variable of the program's environment, which has no others
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub(crate) environment: Vec<String>,
    /// Instructions after which all lines and pages are recorded anew, so that a kernel may come between there
    #[arg(long, value_name = "N", default_value_t = Rules::STANDARD.reset_every)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) reset_every: u32,
    /// The program and its arguments
    #[arg(value_name = "COMMAND", required = true, last = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct TraceShow {
    /// A file that ends in .pft, or the name of a trace that is built in
    #[arg(value_name = "TRACE")]
    pub(crate) trace: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Disk {
    #[command(subcommand)]
    pub(crate) command: DiskCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DiskCommand {
    /// Make an image that holds what a directory does
    Make(DiskMake),
    /// List what an image holds
    Ls(DiskList),
    /// Take a file or a directory out of an image
    Get(DiskGet),
    /// Look whether an image is whole
    Check(DiskCheck),
}

#[derive(Debug, Args)]
pub(crate) struct DiskMake {
    /// The directory: its files and directories, and those below it
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Where the image goes
    #[arg(long, short, value_name = "IMG")]
    pub(crate) out: PathBuf,
    /// Its size in MB of 2^20 bytes; if absent, what the files need, and a quarter
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) size_mb: Option<u32>,
    /// Bytes of a block
    #[arg(long, value_name = "N", default_value = "2048", value_parser = PossibleValuesParser::new(BLOCK_BYTES))]
    pub(crate) block_bytes: String,
    /// Bytes of a fragment, which the last block of a small file is made of: an eighth of a block to a whole one; if
    /// absent, a block
    #[arg(long, value_name = "N", value_parser = PossibleValuesParser::new(BLOCK_BYTES))]
    pub(crate) fragment_bytes: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DiskList {
    /// The image
    #[arg(value_name = "IMG")]
    pub(crate) image: PathBuf,
    /// What of it: all if absent
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DiskGet {
    /// The image
    #[arg(value_name = "IMG")]
    pub(crate) image: PathBuf,
    /// What to take out of it
    #[arg(value_name = "PATH")]
    pub(crate) path: String,
    /// Where it goes: a file, or for a directory a new folder
    #[arg(long, short, value_name = "OUT")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct DiskCheck {
    /// The image
    #[arg(value_name = "IMG")]
    pub(crate) image: PathBuf,
    /// Make it whole
    #[arg(long)]
    pub(crate) repair: bool,
}

#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct Host {
    #[command(subcommand)]
    pub(crate) command: HostCommand,
}

#[cfg(target_os = "linux")]
impl Host {
    pub(crate) fn hears_signals(&self) -> bool {
        matches!(&self.command, HostCommand::Bench(options) if options.hears_signals())
    }
}

#[cfg(target_os = "linux")]
#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// Say what helps or hinders on this host, what the library does without it, and the setting that would change it
    Doctor(HostDoctor),
    /// Compare the library with what the kernel has, and with plain shared memory, between two processes
    Bench(pageferry_bench::Arguments),
    /// Measure in about 20 s what the library's `auto` decides by on this host, and write it into the file that it
    /// reads
    Calibrate(pageferry_bench::Calibration),
    /// Measure the parts that messages are made of, and whether messages take what these add up to
    Predict(pageferry_bench::Prediction),
    /// The other process of `bench`, `calibrate` and `predict`
    #[command(hide = true)]
    Peer(pageferry_bench::PeerArguments),
}

#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct HostDoctor {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
