//! Peers that do what no honest one would. The library always loses nothing by it.
//!
//! # How it works
//! A row of the table is a level, the end of the library that is attacked, what the peer does, and what must hold.
//! Each row runs in processes of its own: this program starts itself as the *victim*, which is the library's end and
//! checks what must hold, and the victim starts this program as the *peer*, which speaks the wire by system calls. A
//! victim that ends by a signal or a panic, or that takes longer than the watchdog allows, has lost.
//!
//! An argument runs only the rows whose name has it as a part. `PAGEFERRY_HOSTILE_EVERY=10` runs each tenth of those.

mod ends;
mod greetings;
mod memory;
mod more;
#[path = "../peer/mod.rs"]
mod peer;
mod receivers;
mod senders;
mod slots;
mod stage;
#[path = "../peer/uring.rs"]
mod uring;
mod victim;

use pageferry_untested::untested;
use peer::emulated::{Need, why, works};
use stage::Row;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// No row takes longer, whatever its peer does.
const WATCHDOG: Duration = Duration::from_secs(300);

fn table() -> Vec<Row> {
    let mut rows = memory::rows();
    rows.extend(greetings::rows());
    rows.extend(senders::rows());
    rows.extend(receivers::rows());
    rows.extend(ends::rows());
    rows.extend(slots::rows());
    rows
}

/// What an attack cannot be made without.
fn needs(attack: &str) -> Option<Need> {
    match attack {
        "stores by a map that mremap duplicates" | "duplicates a map of the pool" => Some(Need::Duplicated),
        "removes its pages" => Some(Need::Removed),
        "has the kernel store, by process_vm_writev" => Some(Need::WrittenByOthers),
        "sends a wake-up with too many descriptors"
        | "sends 253 descriptors with its greeting"
        | "sends 253 descriptors with its answer" => Some(Need::CutDescriptors),
        _ => None,
    }
}

/// The names of the rows that are to be run; says which cannot be had here.
fn chosen(wanted: &[&String]) -> Vec<String> {
    let every = std::env::var("PAGEFERRY_HOSTILE_EVERY").map_or(1, |text| text.parse().expect("a number"));
    let rows = table().into_iter().filter(|row| wanted.iter().all(|part| row.name().contains(*part)));
    let rows: Vec<Row> = rows.step_by(every).collect();
    let mut absent: BTreeMap<Need, usize> = BTreeMap::new();
    let all: BTreeSet<Need> = rows.iter().filter_map(|row| needs(row.attack)).collect();
    let lacks: Vec<Need> = all.into_iter().filter(|&need| !works(need)).collect();
    let mut names = Vec::new();
    for row in rows {
        match needs(row.attack).filter(|need| lacks.contains(need)) {
            Some(need) => *absent.entry(need).or_default() += 1,
            None => names.push(row.name()),
        }
    }
    absent.iter().for_each(|(&need, rows)| println!("{rows} hostile peers are left out: {}", why(need)));
    names
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let named =
        |name: &String| table().into_iter().find(|row| row.name() == *name).expect("a row of the table");
    match args.as_slice() {
        [role, name] if role == "victim" => {
            victim::run(&named(name));
            return ExitCode::SUCCESS;
        }
        [role, name, socket, control, shared] if role == "peer" => {
            let row = named(name);
            (row.peer)(&stage::Stage::inherited(&row, [socket, control, shared]));
            return ExitCode::SUCCESS;
        }
        _ => (),
    }
    let wanted: Vec<&String> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    let names: Vec<String> = table().iter().map(Row::name).collect();
    let mut sorted = names.clone();
    sorted.sort();
    assert!(sorted.windows(2).all(|two| two[0] != two[1]), "no name is twice in the table");
    if args.iter().any(|arg| arg == "--list") {
        let listed = names.iter().filter(|name| wanted.iter().all(|part| name.contains(*part)));
        listed.for_each(|name| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let names = chosen(&wanted);
    let found = [memory::can_pin(), slots::are_here()];
    if !found[0] {
        untested("peers that pin memory", "io_uring is not to be had");
    }
    if !found[1] {
        untested("peers that send slots", "leases are not to be had");
    }
    let (next, lost) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(why) = play(name, found) {
                        eprintln!("{name}: the peer won");
                        lost.lock().unwrap().push(format!("{name}: {why}"));
                    }
                }
            });
        }
    });
    let lost = lost.into_inner().unwrap();
    println!("{} hostile peers, {} of them won", names.len(), lost.len());
    lost.iter().for_each(|row| println!("  {row}"));
    if lost.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What this program has found out about its host, for the processes that it starts: the table is the same in all, and
/// who has had a ring of io_uring is interrupted later.
pub fn once(variable: &str, find: fn() -> bool) -> bool {
    match std::env::var(variable) {
        Ok(found) => found == "true",
        Err(_) => find(),
    }
}

/// Runs a row; the error says how its peer won.
fn play(name: &str, [pins, leases]: [bool; 2]) -> Result<(), String> {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["victim", name])
        .env("PAGEFERRY_TEST_URING", pins.to_string())
        .env("PAGEFERRY_TEST_LEASES", leases.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut victim = command.spawn().map_err(|error| error.to_string())?;
    let group = -(victim.id() as i32);
    let stderr = victim.stderr.take().expect("it is piped");
    let told = std::thread::spawn(move || std::io::read_to_string(stderr).unwrap_or_default());
    let until = Instant::now() + WATCHDOG;
    let ended = loop {
        match victim.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break Some(status),
            None if Instant::now() > until => break None,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    // SAFETY: the group is the victim's own; its peers and their children are in it.
    unsafe { libc::kill(group, libc::SIGKILL) };
    let _ = victim.wait();
    let told = told.join().unwrap_or_default();
    match ended {
        Some(status) if status.success() => Ok(()),
        Some(status) => match status.signal() {
            Some(signal) => Err(format!("killed by signal {signal}\n{told}")),
            None => Err(told),
        },
        None => Err(format!("still running after {WATCHDOG:?}\n{told}")),
    }
}
