//! One miss of the TLB, followed to its end: what hardware does, what the kernel's refill handler does, and what that
//! misses itself.
//!
//! The model watches what is done ([`Model::watch`]); here the steps are put into words. The kernel's paths and tables
//! say which step is which.

use super::stage::{Comparison, Field, Mechanism, More, Ran, Stage, Step, Table, Variant, map};
use pageferry_hal::isa::hash::{ENTRY_BYTES, GROUP_BYTES, GROUP_ENTRIES};
use pageferry_hal::{
    Access, Cause, CodePath, Flush, HashTable, Instructions, Machine as _, Mmu, PAGE_SIZE, Pa, Prot, Va,
};
use pageferry_kernel::{Errno, User};
use pageferry_lab::LabError;
use pageferry_lab::kit::{CallError, named};
use pageferry_model::{Action, Model, Observation, Spent};
use pageferry_pmap::{RefillPaths, Reload};
use pageferry_vm::Inherit;

pub(super) const ALL: &[Mechanism] = &[Mechanism {
    name: "refill",
    title: "a miss of the TLB, step by step: who looks where, and what the handler misses itself",
    text: "The page tables say what is mapped, and a hash table of fixed size holds copies of entries. A 604 looks \
           there by itself and calls the kernel when it finds nothing; on a 603 the kernel does all of that. The fast \
           handler works in a few registers, with physical addresses. The slow one saves all registers and calls C, \
           with virtual addresses: where the kernel's memory is mapped by pages, that can miss. A miss within a \
           handler is always handled the fast way, which cannot miss: there it ends. Each access below begins with \
           empty TLBs, and with first-level caches that the program has filled; the table has what it takes with warm \
           caches, too.",
    source: "PPC paper, section on reducing the OS TLB footprint; Linux/PPC 2.0 and 2.2, head.S",
    machine: "ppc603",
    kernel: "linux-ppc",
    set: &[],
    counterexample: None,
    more: Some(&More { runs: RUNS, table }),
    far_end: false,
    program: refill,
}];

const FAST_PTE: &[&str] = &["kernel.refill.reload=fast", "kernel.pmap.mapping=pte"];
const FAST_BAT: &[&str] = &["kernel.refill.reload=fast", "kernel.pmap.mapping=bat"];
const SLOW_PTE: &[&str] = &["kernel.refill.reload=slow", "kernel.pmap.mapping=pte"];
const SLOW_BAT: &[&str] = &["kernel.refill.reload=slow", "kernel.pmap.mapping=bat"];

const fn variant(
    machine: &'static str,
    set: &'static [&'static str],
    words: Option<&'static str>,
) -> Variant {
    Variant { machine, set, words }
}

const RUNS: &[Variant] = &[
    variant(
        "ppc603",
        FAST_PTE,
        Some("the fast handler; it needs no translation, however the kernel is mapped:"),
    ),
    variant("ppc603", FAST_BAT, None),
    variant("ppc603", SLOW_PTE, Some("the slow handler, the kernel mapped by pages:")),
    variant("ppc603", SLOW_BAT, Some("the slow handler, the kernel mapped by blocks:")),
    variant("ppc604", FAST_PTE, Some("the fast handler:")),
    variant("ppc604", FAST_BAT, None),
    variant("ppc604", SLOW_PTE, Some("the slow handler, the kernel mapped by pages:")),
    variant("ppc604", SLOW_BAT, None),
];

/// What is done to a page, on pages whose entries of the page table lie in lines of their own.
const PAGES: usize = 32;
const REHEARSED: usize = 4;
const FOLLOWED: usize = 20;

fn refill(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    if matches!(user.machine().board().mmu, Mmu::Radix(_)) {
        return Err(("follow a miss that hardware resolves by itself", Errno::NotSupported));
    }
    let at = map(user, PAGES).map_err(named("map a buffer"))?;
    let text = user.map(CACHES, Prot::READ | Prot::EXECUTE, Inherit::None).map_err(named("map a program"))?;
    let caches = Caches { data: map(user, CACHES / PAGE_SIZE).map_err(named("map a buffer"))?, text };
    // What the kernel does for the first time, it does now.
    let rehearsed = at + REHEARSED * PAGE_SIZE;
    user.store(rehearsed, &[1; 4]);
    close(user, rehearsed)?;
    for _ in 0..2 {
        caches.fill(user);
        load(user, rehearsed);
    }

    let page = at + FOLLOWED * PAGE_SIZE;
    caches.fill(user);
    empty_tlbs(user);
    let first = stage.model.snapshot();
    stage.begin();
    user.store(page, &[1; 4]);
    stage.end(
        "A program stores to a page for the first time. Its miss finds no entry anywhere: a page fault. Then the store \
         is made again, and its miss finds what the fault has entered into the page tables.",
    );
    let spent = stage.model.snapshot().since(&first);
    stage.count("instructions", spent.hardware.instructions);
    // To clear the page takes most of it, and depends on whether its frame was in a cache.
    let cycles = busy(&spent.cycles[user.machine().cpu().index()]) - spent.cause(Cause::Zero);
    stage.figure("first touch", cycles);

    close(user, page)?;
    caches.fill(user);
    let miss = load(user, page);
    tell(stage, user, &miss, true);
    caches.fill(user);
    let hit = load(user, page);
    tell(stage, user, &hit, false);
    stage.begin();
    user.load(page, &mut [0; 4]);
    stage.end("The load once more: its entry is in the TLB.");

    // The same with what it takes in the caches.
    stage.figure("warm hit", busy(&sum(&load(user, page)).cycles));
    user.protect(page, PAGE_SIZE, Prot::RW).map_err(named("open a page"))?;
    user.store(page, &[2; 4]);
    close(user, page)?;
    stage.figure("warm miss", busy(&sum(&load(user, page)).cycles));
    Ok(())
}

/// Closes a page to stores, which takes its entry out of the hash table.
fn close(user: &User<Model>, page: Va) -> Result<(), CallError> {
    user.protect(page, PAGE_SIZE, Prot::READ).map_err(named("protect a page"))
}

/// Twice what the first-level caches of these machines hold.
const CACHES: usize = 32 << 10;

/// What fills the first-level caches.
struct Caches {
    data: Va,
    text: Va,
}

impl Caches {
    /// The program goes through its data and its text: nothing else is left in the caches next to it.
    fn fill(&self, user: &User<Model>) {
        user.load(self.data, &mut vec![0; CACHES]);
        let bytes = user.machine().board().instruction_bytes as usize;
        user.execute_at(self.text, Instructions((CACHES / bytes) as u32));
    }
}

fn empty_tlbs(user: &User<Model>) {
    user.machine().tlb_flush(Flush::All);
}

/// A load with empty TLBs, watched.
fn load(user: &User<Model>, at: Va) -> Vec<Observation> {
    empty_tlbs(user);
    user.machine().watch();
    user.load(at, &mut [0; 4]);
    user.machine().take_watched()
}

fn sum(steps: &[Observation]) -> Spent {
    steps.iter().fold(Spent::default(), |all, step| all.and(&step.spent))
}

fn busy(cycles: &[u64; Cause::COUNT]) -> u64 {
    Cause::ALL.iter().filter(|cause| **cause != Cause::Idle).map(|cause| cycles[cause.index()]).sum()
}

/// Steps of one kind that follow each other.
struct Part {
    what: What,
    spent: Spent,
    times: u64,
}

/// What a part of a miss is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Looks { va: Va, secondary: bool, found: bool, entries: u32 },
    Miss,
    Path(&'static str),
    Loop,
    Group { secondary: bool },
    Put { secondary: bool, slot: u64 },
    Tables,
    Noted,
    Saves,
    Restores,
    TouchesGroups,
    TouchesTables,
    Lock { taken: bool },
    LoadsTlb,
    Flushes,
    Returns,
    Within { va: Va },
    Access,
}

/// Puts the steps of a load into words, behind what the load is: of a page that the hash table does not have, or has.
fn tell(stage: &Stage, user: &User<Model>, steps: &[Observation], missing: bool) {
    let words = Words::new(user, steps);
    let parts = words.parts(steps);
    let within = steps.iter().filter(|s| matches!(s.doing, Action::Misses(_)) && s.depth > 1).count();
    let deepest = steps.iter().map(|s| s.depth).max().unwrap_or(0);
    stage.promise("a miss within a handler misses no more", deepest <= 2);
    let all = sum(steps);
    let (figure, within_figure) = if missing { ("miss", "within miss") } else { ("hit", "within hit") };
    stage.figure(figure, busy(&all.cycles));
    stage.figure(within_figure, within as u64);
    let mut what = match missing {
        true => "The page was closed to stores, which took its entry out of hash table and TLB. Now the program loads \
                 from it.",
        false => "The program loads from the page again: the TLBs are empty, the hash table has its entry.",
    }
    .to_owned();
    if let Some((primary, secondary)) = words.groups() {
        what += &format!(
            " The page belongs into group {primary} of the hash table, or else into group {secondary}."
        );
    }
    what += " In all:";
    stage.add(Step::watched(false, what, &all));
    stage.count("misses_within", within as u64);
    for (i, part) in parts.iter().enumerate() {
        let next = parts[i + 1..].iter().map(|part| part.what).find(|what| *what != What::Loop);
        stage.add(Step::watched(true, words.say(part, next), &part.spent));
    }
}

/// What is needed to name things.
struct Words {
    table: Option<HashTable>,
    direct_map: Option<Va>,
    paths: RefillPaths,
    slow: bool,
    /// The primary group of the page that is followed.
    primary: Option<u64>,
}

impl Words {
    fn new(user: &User<Model>, steps: &[Observation]) -> Words {
        let (config, pmaps) = (user.kernel().config().pmap, user.kernel().vm().pmaps());
        let table = pmaps.hash_table();
        let mut words = Words {
            table,
            direct_map: user.machine().board().layout.direct_map,
            paths: config.refill.paths,
            slow: config.refill.reload == Reload::Slow,
            primary: None,
        };
        words.primary = steps.iter().find_map(|step| match step.doing {
            Action::Reads(at) if step.depth == 1 => words.group(at),
            _ => None,
        });
        words
    }

    /// The group of the hash table that an entry lies in.
    fn group(&self, at: Pa) -> Option<u64> {
        let table = self.table?;
        let group = at.0.checked_sub(table.at.0)? / GROUP_BYTES as u64;
        (group < table.groups as u64).then_some(group)
    }

    /// The groups of the page that is followed, where software has looked.
    fn groups(&self) -> Option<(u64, u64)> {
        let (primary, groups) = (self.primary?, self.table?.groups as u64);
        Some((primary, primary ^ (groups - 1)))
    }

    fn path(&self, path: CodePath) -> What {
        let p = &self.paths;
        let names = [
            (p.direct, "The fast handler, for page tables alone, and its registers."),
            (p.search, "The fast handler finds out where to look, in registers of its own."),
            (p.secondary, "It goes on to the secondary group."),
            (p.insert, "The handler that fills the hash table, in a few registers."),
            (p.save, "The slow handler saves all registers on the way to C."),
            (p.walk, "C goes through the page tables."),
            (p.search_c, "C looks for the page in the hash table."),
            (p.insert_c, "C looks for a place in the hash table."),
            (p.restore, "The way back from C restores all registers."),
        ];
        match names.into_iter().find(|(named, _)| path.text.is_some() && *named == path) {
            Some((_, name)) => What::Path(name),
            None => What::Loop,
        }
    }

    fn parts(&self, steps: &[Observation]) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let (mut within, mut locks) = (None, 0);
        let mut kept = Spent::default();
        for step in steps {
            let mut what = match step.doing {
                Action::Looks { va, secondary, entries, found } => {
                    What::Looks { va, secondary, found, entries }
                }
                Action::Misses(miss) => {
                    if step.depth > 1 {
                        within = Some(miss.va);
                    }
                    What::Miss
                }
                Action::Returns => What::Returns,
                Action::Executes(path) => self.path(path),
                Action::Reads(at) => match self.group(at) {
                    Some(group) => What::Group { secondary: Some(group) != self.primary },
                    None => What::Tables,
                },
                Action::Writes(at) => match (self.group(at), self.table) {
                    (Some(group), Some(table)) => What::Put {
                        secondary: Some(group) != self.primary,
                        slot: (at.0 - table.at.0) % GROUP_BYTES as u64 / ENTRY_BYTES as u64,
                    },
                    _ => What::Noted,
                },
                Action::Touches(_, Access::Write) => What::Saves,
                Action::Touches(va, _) => match self.lies(va, &parts) {
                    Some(true) => What::TouchesGroups,
                    Some(false) => What::TouchesTables,
                    None => What::Restores,
                },
                Action::Locks => {
                    locks += 1;
                    What::Lock { taken: locks % 2 == 1 }
                }
                Action::LoadsTlb(_) => What::LoadsTlb,
                Action::Flushes(_) => What::Flushes,
                _ => What::Access,
            };
            if let Some(va) = within {
                what = What::Within { va };
                if step.depth == 2 && step.doing == Action::Returns {
                    within = None;
                }
            }
            let spent = std::mem::take(&mut kept).and(&step.spent);
            match parts.last_mut() {
                Some(last) if last.what == what => {
                    last.spent = last.spent.and(&spent);
                    last.times += 1;
                }
                // What takes no time is not told.
                _ if spent.cycles == [0; Cause::COUNT] => kept = spent,
                _ => parts.push(Part { what, spent, times: 1 }),
            }
        }
        parts
    }

    /// What C reads at a virtual address: true for the hash table, false for page tables; none for the saved registers.
    fn lies(&self, va: Va, before: &[Part]) -> Option<bool> {
        if before
            .iter()
            .rev()
            .any(|part| matches!(part.what, What::Path(name) if name.starts_with("The way back")))
        {
            return None;
        }
        let at = Pa(va.0.checked_sub(self.direct_map?.0)?);
        Some(self.group(at).is_some())
    }

    fn say(&self, part: &Part, next: Option<What>) -> String {
        let group = |secondary: bool| if secondary { "secondary" } else { "primary" };
        match part.what {
            What::Looks { va, secondary, found, entries } => {
                let (which, end) =
                    (group(secondary), if found { "the last is the page's" } else { "none is the page's" });
                format!(
                    "Hardware looks for {:#x} in the {which} group: {}, {end}.",
                    va.0,
                    entries_of(u64::from(entries))
                )
            }
            What::Miss => "The miss: an exception calls the kernel.".into(),
            What::Path(name) => name.into(),
            What::Loop => "The instructions of the loop over these entries.".into(),
            What::Group { secondary } => {
                let goes_on = next == Some(What::Group { secondary: true });
                let end = match part.times as usize {
                    GROUP_ENTRIES if goes_on || secondary => "none is the page's",
                    _ => "the last is the page's",
                };
                format!("It reads {} of the {} group: {end}.", entries_of(part.times), group(secondary))
            }
            What::Put { secondary, slot } => {
                format!("It writes the entry to slot {slot} of the {} group.", group(secondary))
            }
            What::Tables => {
                format!("It reads the page tables by physical addresses: {}.", entries_of(part.times))
            }
            What::Noted => "It notes the use in the page table.".into(),
            What::Saves => "It stores the registers.".into(),
            What::Restores => "It loads the registers.".into(),
            What::TouchesGroups => "C reads both groups by virtual addresses.".into(),
            What::TouchesTables => "C reads the page tables by virtual addresses.".into(),
            What::Lock { taken } => {
                format!("It {} the lock of the hash table.", if taken { "takes" } else { "lets go of" })
            }
            What::LoadsTlb => "It loads the TLB.".into(),
            What::Flushes => "It invalidates what the TLB has of the page.".into(),
            What::Returns => "It returns: the access is made again.".into(),
            What::Within { va } => format!(
                "It misses itself, at {:#x}: the handler is called within, {}finds the kernel's entry, and returns.",
                va.0,
                if self.slow { "the fast way, " } else { "" }
            ),
            What::Access => "The load itself.".into(),
        }
    }
}

/// So many entries.
fn entries_of(count: u64) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}

fn table(runs: &[Ran]) -> Result<Comparison, LabError> {
    let row = |ran: &Ran| {
        let mut row = ran.words();
        let figure = |name| Field::Number(ran.figures.get(name).copied().unwrap_or(0));
        row.extend(
            ["first touch", "miss", "warm miss", "within miss", "hit", "warm hit", "within hit"].map(figure),
        );
        row
    };
    let title = "Cycles of a first touch, with its page fault, but without those that clear the page; of a load whose \
                 page is in the page tables and not in the hash table (a hash miss); of one whose page is in the hash \
                 table (a hit); both also with warm caches; and misses within the handler.";
    let head = vec![
        "machine",
        "handler",
        "mapped",
        "first touch",
        "hash miss",
        "warm",
        "within",
        "hash hit",
        "warm",
        "within",
    ];
    Ok((Table { title: title.into(), head, rows: runs.iter().map(row).collect() }, Vec::new()))
}
