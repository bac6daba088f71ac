//! Whole ranges between processes: map entry passing, and quick references.

use super::stage::{Mechanism, Stage, contents, look_at, map};
use pageferry_hal::PAGE_SIZE;
use pageferry_kernel::{ExportId, ExportTo, User};
use pageferry_lab::kit::{CallError, named};
use pageferry_model::Model;
use pageferry_vm::PassMode;

const PAGES: usize = 16;
const BYTES: usize = PAGES * PAGE_SIZE;

pub(super) const ALL: &[Mechanism] = &[
    Mechanism {
        name: "pass",
        title: "map entry passing: a range of memory goes to another process whole",
        text: "A process exports a range of its addresses: to be shared, copied or donated. The importer gets map \
               entries that refer to the same amaps and objects; no page is looked at, so the cost hardly grows with \
               the size. A copy is copy-on-write, a donation leaves nothing behind.",
        source: "UVM paper, 4.3 and 5.4",
        machine: "pentium-pro",
        kernel: "uvm",
        set: &[],
        counterexample: None,
        more: None,
        far_end: false,
        program: pass,
    },
    Mechanism {
        name: "quick-ref",
        title: "quick reference: a few pages of another process, looked at for a moment",
        text: "A debugger that reads a word of a process should not cut its map entry in pieces. A quick reference \
               puts entries for up to sixteen pages at the top of the holder's map and leaves the source's map alone.",
        source: "UVM paper, 4.3.1",
        machine: "pentium-pro",
        kernel: "uvm",
        set: &[],
        counterexample: None,
        more: None,
        far_end: false,
        program: quick_ref,
    },
];

fn pass(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    let parent = user.pid();
    let shared = stage.buffer(user, PAGES)?;
    let copied = stage.buffer(user, PAGES)?;
    let donated = stage.buffer(user, PAGES)?;
    let export = |at, mode| user.export(at, BYTES, mode, ExportTo::Anyone);
    let share = export(shared, PassMode::Share).map_err(named("export"))?;
    let copy = export(copied, PassMode::Copy).map_err(named("export"))?;
    let donate = stage
        .step("A process exports sixteen pages: an offer with a number; nothing is passed yet.", || {
            export(donated, PassMode::Donate)
        })?;
    stage.other(user, "importer", move |stage, user| {
        stage.promise("the importer is another process", user.pid() != parent);
        importer(stage, user, share, copy, donate)
    })?;
    let same = contents(PAGES);
    let frame = |at| stage.model.inspect(|| user.frame_behind(at));
    stage.promise("the exporter sees what was written to shared memory", !stage.holds(user, shared, &same));
    stage.promise("the exporter's copy is as it was", stage.holds(user, copied, &same));
    stage.promise("what was donated is gone", frame(donated).is_none());
    stage.note(
        "afterwards the exporter sees the write to what it shared, not that to the copy, and has no donated \
                page",
    );
    Ok(())
}

fn importer(
    stage: &Stage,
    user: &User<Model>,
    share: ExportId,
    copy: ExportId,
    donate: ExportId,
) -> Result<(), CallError> {
    let write = |at| {
        user.store(at, &[1; 4]);
        Ok(())
    };
    let got = stage
        .step("Another imports a donation: the map entry moves, and the donor's mappings go.", || {
            user.import(donate, None)
        })?;
    stage.promise("what was donated has arrived", stage.holds(user, got.at, &contents(PAGES)));
    stage.step("It writes to the first page: a fault maps it, nothing is copied.", || write(got.at))?;
    let got = stage.step("It imports a copy: the exporter's mappings are write-protected.", || {
        user.import(copy, None)
    })?;
    stage.step("It writes to the first page of it: one page is copied.", || write(got.at))?;
    let got = stage.step("It imports shared memory: both entries refer to the same amap.", || {
        user.import(share, None)
    })?;
    stage.step("It writes to the first page of it: nothing is copied, the exporter sees the write.", || {
        write(got.at)
    })
}

fn quick_ref(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    // The child waits on a socket with its memory until it is done with.
    let (ours, theirs) = user.socket_pair().map_err(named("socket pair"))?;
    let at = stage.buffer(user, 1)?;
    let target =
        user.map(BYTES, pageferry_hal::Prot::RW, pageferry_vm::Inherit::Copy).map_err(named("map"))?;
    user.store(target, &contents(PAGES));
    let child = stage.fork(user, "debugged", move |_, user| {
        let here = map(user, 1).map_err(named("map"))?;
        user.close(ours).map_err(named("close"))?;
        user.read(theirs, here, 4).map_err(named("wait")).map(|_| ())
    })?;
    user.close(theirs).map_err(named("close"))?;
    user.yield_now().map_err(named("yield"))?;
    let word = 8;
    stage.step(
        "A parent reads a word of its child through a quick reference: entries made, one copy, entries gone.",
        || user.ptrace_read(child, target, at, word),
    )?;
    stage.promise("the word is the child's", {
        let mut found = vec![0; word];
        user.load(at, &mut found);
        found == contents(PAGES)[..word]
    });
    stage.step(
        "It sets a breakpoint: what the child shares copy-on-write is copied for the child first.",
        || user.ptrace_write(child, target, at, word),
    )?;
    stage.step("It sets another on the same page: the page is the child's own now.", || {
        user.ptrace_write(child, target + word, at, word)
    })?;
    stage.begin();
    look_at(user, target, 1);
    stage.end("The parent's own page is untouched.");
    stage.promise("the parent's memory is as it was", stage.holds(user, target, &contents(PAGES)));
    user.close(ours).map_err(named("close"))?;
    user.wait().map_err(named("wait")).map(|_| ())
}
