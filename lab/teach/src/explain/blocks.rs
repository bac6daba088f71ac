//! The kernel's memory by pages and by blocks: what that takes of the TLB, and what it is worth.

use super::stage::{Comparison, Field, Mechanism, More, Ran, Stage, Table, Variant, look_at, map};
use pageferry_hal::{Attr, CopyFault, Flush, Machine as _, Mode, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Fd, OpenFlags, User};
use pageferry_lab::LabError;
use pageferry_lab::files::Settings;
use pageferry_lab::kit::{CallError, named};
use pageferry_lab::record::Law;
use pageferry_lab::run::{Choices, Registry, RunSpec, run};
use pageferry_lab::text;
use pageferry_model::Model;
use std::sync::Arc;

pub(super) const ALL: &[Mechanism] = &[Mechanism {
    name: "bat",
    title: "the kernel mapped by blocks: registers in place of TLB entries",
    text: "A PowerPC has a few pairs of registers (BATs), each of which maps a block: 128 KB to 256 MB, aligned to its \
           size, at physical addresses that are as well. They are looked at before pages, so that an address in a \
           block takes no entry of the TLB and cannot miss. Linux/PPC mapped all of memory for the kernel by pages at \
           first: then the kernel's entries push out the user's, and the other way round. What follows is run with the \
           fast handler, which takes no entries for itself; the table at the end has both.",
    source: "PPC paper, section on reducing the OS TLB footprint",
    machine: "ppc603",
    kernel: "linux-ppc",
    set: &[],
    counterexample: None,
    more: Some(&More { runs: RUNS, table }),
    far_end: false,
    program: bat,
}];

const PTE: &[&str] = &["kernel.refill.reload=fast", "kernel.pmap.mapping=pte"];
const BAT: &[&str] = &["kernel.refill.reload=fast", "kernel.pmap.mapping=bat"];

const RUNS: &[Variant] = &[
    Variant { machine: "ppc603", set: PTE, words: Some("the kernel mapped by pages:") },
    Variant { machine: "ppc603", set: BAT, words: Some("the kernel mapped by blocks:") },
    Variant { machine: "ppc604", set: PTE, words: Some("the kernel mapped by pages:") },
    Variant { machine: "ppc604", set: BAT, words: Some("the kernel mapped by blocks:") },
];

/// Pages of the direct map that the kernel looks at.
const LOOKED_AT: usize = 8;
const NAME: &str = "explained";

fn bat(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    if user.machine().board().blocks.is_none() {
        return Err(("map memory by blocks", Errno::NotSupported));
    }
    let pages = stage.tlb_entries;
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let fd = user.open(NAME, flags).map_err(named("open"))?;
    let at = map(user, pages + 1).map_err(named("map a buffer"))?;
    for page in 0..pages {
        user.store(at + page * PAGE_SIZE, &[1; 4]);
    }
    user.write(fd, at, PAGE_SIZE).map_err(named("write the file"))?;
    let result = told(stage, user, fd, at);
    user.close(fd).map_err(named("close"))?;
    user.unlink(NAME).map_err(named("unlink"))?;
    result
}

fn told(stage: &Stage, user: &User<Model>, fd: Fd, at: Va) -> Result<(), CallError> {
    let pages = stage.tlb_entries;
    let direct = direct_map(user, at)?;
    user.machine().tlb_flush(Flush::All);
    counted(
        stage,
        &format!(
            "The TLBs are empty. The kernel loads a word of each of {LOOKED_AT} pages, at the addresses at which it \
             has all memory."
        ),
        || (0..LOOKED_AT).try_for_each(|page| kernel_load(user, direct[page])),
    )?;
    say_how_it_is_mapped(stage, user);
    counted(stage, "It loads them again.", || direct.iter().try_for_each(|at| kernel_load(user, *at)))?;

    user.machine().tlb_flush(Flush::All);
    counted(
        stage,
        &format!(
            "The TLBs are empty again. A program loads a word of each of {pages} pages: as many as the TLB for data \
             has entries."
        ),
        || {
            look_at(user, at, pages);
            Ok(())
        },
    )?;
    let again = |what: &str| {
        counted(stage, what, || {
            look_at(user, at, pages);
            Ok(())
        })
    };
    again("It loads from all of them again: they are all there.")?;
    counted(stage, "It makes a small system call: it sets the offset of a file.", || {
        user.seek(fd, 0).map(|_| ()).map_err(named("seek"))
    })?;
    again("It loads from all of them again: what it misses, the kernel has pushed out.")?;
    counted(stage, "It reads a page of a file that is in memory, with a system call.", || {
        user.read(fd, at, PAGE_SIZE).map(|_| ()).map_err(named("read"))
    })?;
    again(
        "It loads from all its pages again: what it misses the kernel has pushed out, or one of its own pages that \
         came back.",
    )?;
    again("And once more.")?;
    counted(stage, "It touches one page more, for the first time: a page fault.", || {
        user.store(at + pages * PAGE_SIZE, &[1; 4]);
        Ok(())
    })?;
    again(
        "It loads from all but that page again. Besides the kernel, the new page has pushed out what was in its place.",
    )?;
    protection(stage, user)
}

/// A step, with what was missed in it, and what the kernel has in the TLBs then.
fn counted(stage: &Stage, what: &str, call: impl FnOnce() -> Result<(), CallError>) -> Result<(), CallError> {
    let before = stage.model.snapshot();
    stage.begin();
    call()?;
    stage.end(what);
    let hardware = stage.model.snapshot().since(&before).hardware;
    stage.count("fetch_tlb_misses", hardware.fetch_misses);
    stage.count("kernel_tlb_misses", hardware.kernel_misses());
    let (live, kernels) = stage.model.kernel_tlb_entries();
    stage.note(format!("in the TLBs now: {live} entries, {kernels} of them the kernel's"));
    Ok(())
}

/// Where the kernel has the first pages of the program's buffer.
fn direct_map(user: &User<Model>, at: Va) -> Result<Vec<Va>, CallError> {
    let wired = user.space().wire(user.thread(), at, LOOKED_AT * PAGE_SIZE, Prot::READ);
    let wired = wired.map_err(|e| ("wire", e.into()))?;
    let pmaps = user.kernel().vm().pmaps();
    let direct: Option<Vec<Va>> = wired.frames().iter().map(|frame| pmaps.direct_va(*frame)).collect();
    user.kernel().vm().unwire(wired);
    direct.ok_or(("find memory mapped for the kernel", Errno::NotSupported))
}

fn kernel_load(user: &User<Model>, at: Va) -> Result<(), CallError> {
    let loaded = user.machine().load(Mode::Kernel, at, &mut [0; 4]);
    loaded.map_err(|_| ("load from the kernel's memory", Errno::Fault))
}

fn say_how_it_is_mapped(stage: &Stage, user: &User<Model>) {
    let (board, blocks) = (user.machine().board(), user.kernel().vm().pmaps().blocks());
    let memory = text::bytes((board.frames * PAGE_SIZE) as u64);
    if blocks.is_empty() {
        stage.note(format!(
            "{memory} of memory are mapped by {} entries of page tables, and by no block",
            board.frames
        ));
    }
    for block in blocks {
        let last = block.va + (block.len_bytes() as usize - 1);
        let len = text::bytes(block.len_bytes());
        stage.note(format!(
            "of {memory} of memory, a block of {len} maps {:#x} to {:#x}, to physical addresses from {:#x} on",
            block.va.0, last.0, block.pa.0
        ));
    }
    if let (Some(registers), false) = (board.blocks, blocks.is_empty()) {
        stage.note(format!(
            "registers in use: {} of {} for data, as many for instructions",
            blocks.len(),
            registers.count
        ));
    }
    let covered: u64 = blocks.iter().map(|block| block.len_bytes()).sum();
    let bytes = (board.frames * PAGE_SIZE) as u64;
    stage.promise("blocks cover all of memory, or none", blocks.is_empty() || covered >= bytes);
}

/// The kernel closes a page of its own to stores; the same frame stays open through the direct map.
fn protection(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    let (vm, m) = (user.kernel().vm(), user.machine());
    let pmaps = vm.pmaps();
    let memory = vm.kernel_alloc(1).map_err(|e| ("a page of the kernel's", e.into()))?;
    let (page, frames) = (memory.va(), memory.frames().to_vec());
    let direct =
        pmaps.direct_va(frames[0]).ok_or(("find memory mapped for the kernel", Errno::NotSupported))?;
    let store = |at: Va| m.store(Mode::Kernel, at, &[1; 4]);
    let said = |stored: Result<(), CopyFault>| if stored.is_ok() { "done" } else { "refused" };
    stage.begin();
    pmaps.kenter(page, &frames, Prot::READ).flush(pmaps);
    let by_page = store(page);
    let by_direct = store(direct);
    stage.end(
        "What a block cannot do: the kernel closes one of its pages to stores, at an address that is mapped by pages, \
         and stores there; then it stores to the same frame through the mapping of all memory.",
    );
    stage.note(format!(
        "the store by the page: {}; by the mapping of all memory: {}",
        said(by_page),
        said(by_direct)
    ));
    let open = |attr: Attr| if attr.contains(Attr::WRITE) { "open" } else { "closed" };
    match pmaps.blocks().iter().find(|block| block.contains(direct)) {
        Some(block) => stage.note(format!(
            "the block is {} to stores as a whole: {} pages, which no page table tells apart",
            open(block.attr),
            block.len_bytes() / PAGE_SIZE as u64
        )),
        None => {
            let entry = stage.model.inspect(|| pmaps.read_kernel_entry(direct));
            stage.note(format!(
                "there too the page has an entry of its own, which is {} and could be another's than its neighbours'",
                open(entry.map_or(Attr::empty(), |tte| tte.attr))
            ));
        }
    }
    stage.promise("a page that is closed refuses stores", by_page.is_err() && by_direct.is_ok());
    vm.kernel_free(memory);
    Ok(())
}

/// What a whole program has under both, with either handler.
fn table(runs: &[Ran]) -> Result<Comparison, LabError> {
    let registry = Registry::standard();
    let experiment = Arc::new(registry.experiment("replay")?);
    let (mut rows, mut laws) = (Vec::new(), Vec::new());
    for reload in ["slow", "fast"] {
        for ran in runs {
            let settings = Settings::parse(&[format!("kernel.refill.reload={reload}")])?;
            let (machine, kernel) = (ran.machine.clone(), ran.kernel.clone());
            let spec = RunSpec::new(&registry, &experiment, machine, kernel, &settings, Choices::default())?;
            let title = spec.title();
            let changed = Ran {
                machine: ran.machine.clone(),
                kernel: (*spec.kernel).clone(),
                figures: Default::default(),
            };
            let record = run(&spec)?.record;
            laws.extend(
                record
                    .laws
                    .iter()
                    .cloned()
                    .map(|law| Law { name: format!("{}, of {title}", law.name), ..law }),
            );
            let result = |name: &str| Field::Number(record.metric(name).map_or(0.0, f64::round) as u64);
            let mut row = changed.words();
            row.extend(
                [
                    "tlb_misses_total",
                    "kernel_tlb_misses",
                    "kernel_tlb_share_percent",
                    "kernel_tlb_high_water",
                    "hash_misses",
                ]
                .map(result),
            );
            row.push(Field::Number(record.cycles.total));
            rows.push(row);
        }
    }
    let head =
        vec!["machine", "handler", "mapped", "misses", "kernel's", "share %", "most", "of hash", "cycles"];
    let title = "A whole program, an assembler (`pageferry run replay --set trace=runq-as`): misses of both TLBs; \
                 those at the kernel's addresses; the kernel's share of the entries in use, and its most entries in a \
                 sample; misses of the hash table; and cycles in all.";
    Ok((Table { title: title.into(), head, rows }, laws))
}
