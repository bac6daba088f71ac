//! Anonymous memory: fork and copy-on-write, memory that goes to the disk and back.

use super::stage::{Mechanism, Stage, contents, look_at, map};
use pageferry_hal::{PAGE_SIZE, Prot};
use pageferry_kernel::User;
use pageferry_lab::kit::{CallError, named};
use pageferry_model::Model;
use pageferry_vm::Inherit;

pub(super) const ALL: &[Mechanism] = &[
    Mechanism {
        name: "cow",
        title: "fork: parent and child share pages until one of them writes",
        text: "Memory is mapped without frames: a page comes into being, cleared, when it is first touched. A fork \
               copies no page. It write-protects the parent's mappings and counts a second reference to each anon; who \
               writes first faults and gets a copy, and who has the last reference writes in place.",
        source: "UVM paper, 3.1 and 3.3",
        machine: "pentium-pro",
        kernel: "uvm",
        set: &[],
        counterexample: None,
        more: None,
        far_end: false,
        program: cow,
    },
    Mechanism {
        name: "pageout",
        title: "memory that is overcommitted: pages go to the disk and come back",
        text: "When few frames are free, the page daemon takes those that were not used lately. It removes their \
               mappings, writes what is not on the disk as it is in clusters to fresh swap slots, and frees the \
               frames; a touch faults and reads the page back.",
        source: "UVM paper, 3.1; NetBSD, uvm_pdaemon.c",
        machine: "pentium-iii",
        kernel: "sf_buf-paging",
        set: &["machine.memory.size_mb=16", "kernel.ephemeral.entries=64"],
        counterexample: None,
        more: None,
        far_end: false,
        program: pageout,
    },
];

fn cow(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    const PAGES: usize = 4;
    let at = stage.step("Four pages are mapped: a map entry, and no frame.", || {
        user.map(PAGES * PAGE_SIZE, Prot::RW, Inherit::Copy)
    })?;
    let before = contents(PAGES);
    stage.step("The process fills them: a fault for each page takes a frame and clears it.", || {
        user.store(at, &before);
        Ok(())
    })?;
    stage.begin();
    let expected = before.clone();
    stage.fork(user, "child", move |stage, user| {
        stage.begin();
        let mut found = vec![0; PAGES * PAGE_SIZE];
        user.load(at, &mut found);
        stage.promise("the child reads what the parent wrote", found == expected);
        stage.end("The child reads all four: it shares the parent's frames.");
        stage.step(
            "It writes to the first: a fault copies one page, and only the child has the copy.",
            || {
                user.store(at, &[1; 4]);
                Ok(())
            },
        )
    })?;
    stage.end("The process forks: its mappings are write-protected, each anon has one reference more.");
    user.wait().map_err(named("wait"))?;
    stage.promise("the parent's memory is as it was", stage.holds(user, at, &before));
    stage.step(
        "The child has exited. The parent writes to the second page: it is alone with it, and nothing is copied.",
        || {
            user.store(at + PAGE_SIZE, &[2; 4]);
            Ok(())
        },
    )
}

fn pageout(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    let pages = user.kernel().vm().free_frames() + 256;
    stage.begin();
    let at = map(user, pages).map_err(named("map"))?;
    for page in 0..pages {
        user.store(at + page * PAGE_SIZE, &(page as u32).to_le_bytes());
    }
    stage.end(
        "A process writes to 256 pages more than there are free frames: the daemon makes room as it goes.",
    );
    stage.note(format!("{pages} pages are mapped, {} frames are free", user.kernel().vm().free_frames()));
    stage.promise(
        "the first page has gone to the disk",
        stage.model.inspect(|| user.frame_behind(at).is_none()),
    );
    let mut found = [0; 4];
    stage.step("It reads the first page: the fault reads the page from its swap slot.", || {
        user.load(at, &mut found);
        Ok(())
    })?;
    stage.promise("the first page came back as it was", found == 0u32.to_le_bytes());
    stage.step("It reads it again: the page is mapped.", || {
        look_at(user, at, 1);
        Ok(())
    })
}
