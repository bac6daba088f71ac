//! Kernel addresses for user pages, and what telling other CPUs costs: sf_buf and shootdowns.

use super::stage::{Mechanism, Stage};
use pageferry_ephemeral::{AllocError, Flags, Mapping, MappingUser};
use pageferry_hal::{Account, Cause, CpuSet, Machine as _, Mode, PAGE_SIZE, Pfn, Prot, Threads as _};
use pageferry_kernel::{Errno, User};
use pageferry_lab::kit::{CallError, named};
use pageferry_model::Model;
use pageferry_vm::Wired;

pub(super) const ALL: &[Mechanism] = &[
    Mechanism {
        name: "sf_buf",
        title: "ephemeral mapping: a page's short-lived kernel address, cached and shared",
        text: "To reach a page the kernel gives it an address of its own for a moment. A cache keeps the mapping when \
               it is given back, so that the next request for the same page finds it and no TLB needs to be told. A \
               private mapping is used on one CPU only, so that the others need not be told even when it is made anew.",
        source: "sf_buf paper, 4.1 and 4.2",
        machine: "xeon-mp",
        kernel: "sf_buf",
        set: &["kernel.ephemeral.entries=4"],
        counterexample: None,
        more: None,
        far_end: false,
        program: sf_buf,
    },
    Mechanism {
        name: "shootdown",
        title: "invalidation: a changed mapping must leave the TLBs of all CPUs that may hold it",
        text: "A CPU invalidates its own TLB with an instruction. For another's it sends an interrupt and waits until \
               the other has answered: many times the cost. What only this CPU can hold need not be told to others, \
               and a range needs one interrupt, not one for each page.",
        source: "sf_buf paper, 3",
        machine: "xeon-mp",
        kernel: "sf_buf",
        set: &[],
        counterexample: None,
        more: None,
        far_end: false,
        program: shootdown,
    },
];

/// Asks for an ephemeral mapping of `frame`, and uses it once.
fn use_mapping(user: &User<Model>, frame: Pfn, flags: Flags) -> Result<Mapping, Errno> {
    let (kernel, m) = (user.kernel(), user.machine());
    let mapping =
        kernel.ephemeral().alloc(user.thread(), frame, MappingUser::Other, flags).map_err(|e| match e {
            AllocError::Interrupted => Errno::Interrupted,
            _ => Errno::NoMemory,
        })?;
    let _c = m.scope(Cause::Copy);
    m.load(Mode::Kernel, kernel.ephemeral().kva(&mapping), &mut [0; 8]).expect("the kernel has it mapped");
    Ok(mapping)
}

fn wired(stage: &Stage, user: &User<Model>, len_pages: usize) -> Result<Wired, CallError> {
    let at = stage.buffer(user, len_pages)?;
    let wired = user.space().wire(user.thread(), at, len_pages * PAGE_SIZE, Prot::READ);
    wired.map_err(|e| ("wire", e.into()))
}

fn sf_buf(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    // One page more than the cache has entries.
    let wired = wired(stage, user, 5)?;
    let pages = wired.frames().to_vec();
    let (ephemeral, private, shared) = (user.kernel().ephemeral(), Flags::PRIVATE, Flags::empty());
    let free = |mapping| {
        ephemeral.free(user.thread(), mapping);
        Ok(())
    };
    user.thread().pin();
    for &page in &pages[..4] {
        free(use_mapping(user, page, private).map_err(named("map a page"))?).map_err(named("free"))?;
    }
    let a = stage.step(
        "The cache of four is full. A fifth page, privately: a miss takes the oldest mapping, and this CPU forgets it.",
        || use_mapping(user, pages[4], private),
    )?;
    stage.step("The mapping is given back: it stays, valid, for the next who asks for the page.", || {
        free(a)
    })?;
    let a = stage
        .step("The page again, privately, on the same CPU: a hit, and nothing to invalidate.", || {
            use_mapping(user, pages[4], private)
        })?;
    free(a).map_err(named("free"))?;
    let a = stage.step(
        "The page again, for all CPUs: a hit. Only this CPU has been told; now the others are.",
        || use_mapping(user, pages[4], shared),
    )?;
    free(a).map_err(named("free"))?;
    let a = stage.step("And again for all CPUs: a hit, and all have been told.", || {
        use_mapping(user, pages[4], shared)
    })?;
    free(a).map_err(named("free"))?;
    let b = stage
        .step("The page that lost its place, for all CPUs: a miss that every CPU is told of.", || {
            use_mapping(user, pages[0], shared)
        })?;
    free(b).map_err(named("free"))?;
    user.thread().unpin();
    user.kernel().vm().unwire(wired);
    Ok(())
}

fn shootdown(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    let (vm, m) = (user.kernel().vm(), user.machine());
    let memory = vm.kernel_alloc(1).map_err(|e| ("a page of the kernel's", e.into()))?;
    user.thread().pin();
    let others = m.cpus().difference(CpuSet::only(m.cpu()));
    // Once for warm caches.
    vm.pmaps().invalidate_remote(memory.va(), others);
    stage.step("One page of the kernel's is invalidated on this CPU.", || {
        vm.pmaps().invalidate_local(memory.va());
        Ok(())
    })?;
    stage.step(
        "It is invalidated on all other CPUs: an interrupt, and a wait until they have answered.",
        || {
            vm.pmaps().invalidate_remote(memory.va(), others);
            Ok(())
        },
    )?;
    user.thread().unpin();
    vm.kernel_free(memory);
    let wired = wired(stage, user, 16)?;
    let ephemeral = user.kernel().ephemeral();
    let mut run = ephemeral
        .kva_run(16, MappingUser::Other)
        .map_err(|_| ("addresses for a run of pages", Errno::NoMemory))?;
    stage.step(
        "Sixteen pages are mapped as one run for all CPUs: sixteen invalidations here, one shootdown.",
        || {
            ephemeral.enter_run(&mut run, wired.frames());
            Ok(())
        },
    )?;
    stage.step("They are unmapped: the same again.", || {
        ephemeral.remove_run(&mut run);
        Ok(())
    })?;
    ephemeral.release_run(run);
    user.kernel().vm().unwire(wired);
    let own = stage.buffer(user, 16)?;
    stage.step(
        "A process write-protects sixteen pages of its own: no other CPU has run it, none is told.",
        || user.protect(own, 16 * PAGE_SIZE, Prot::READ),
    )
}
