//! How the cost of a call grows with what it is asked for.
//!
//! The VM system is called as the kernel's own floors call it: no system call and no protocol is in the way. Each call
//! of the measured part finds the state that the first one found; what restores it is left out. Caches stay as they
//! are.
//!
//! * `loan`: `n` pages are lent to the kernel, and given back.
//! * `transfer`: `n` pages of the kernel's become a process's memory, at an address given.
//! * `pass`: `n` pages are donated to another address space.
//! * `lookup`: the protection of an entry is set to what it is, in a map of `n` entries; another entry each time.
//! * `space`: two pages are mapped where there is room, in a map of `n` entries with a hole of one page between any
//!   two.
//! * `amap`: a range of 4096 pages is unmapped, `n` percent of whose pages are in memory.
//! * `fork`: a process with `n` MB of memory forks; its child ends at once.

use crate::error::LabError;
use crate::kit::{CallError, OutcomeCell, named, room_for};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{Machine as _, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Program, User};
use pageferry_model::{MachineConfig, Model, Snapshot};
use pageferry_vm::{Inherit, MapAddr, PassMode, VmError, pass};

/// Pages of the range whose amap is freed.
const AMAP_PAGES: usize = 4096;

crate::choice! {
    /// What is called.
    pub(crate) enum Of {
        Loan = "loan",
        Transfer = "transfer",
        Pass = "pass",
        LookUp = "lookup",
        Space = "space",
        Amap = "amap",
        Fork = "fork",
    }
}

/// The workload.
pub(crate) struct CostGrowth;

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        n: usize = 1..=1 << 32,
        times: usize = 1..=1 << 20,
        of: Of,
    }
}

impl Workload for CostGrowth {
    const NAME: &'static str = "cost-growth";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.n as u64).min(100_000).saturating_mul(p.times as u64) / 100
    }

    fn metrics() -> Vec<Metric> {
        vec![
            metric("cycles_per_call", "cycles", "Modelled time of one call of what grows."),
            metric(
                "cycles_per_unit",
                "cycles",
                "Modelled time of one call, for each unit that it deals with.",
            ),
        ]
    }

    /// The program.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let Parameters { n, times, of } = p;
        let model = testbed.model.clone();
        Ok(Box::new(move |user: &User<Model>| {
            let pages = match of {
                Of::Fork => n << 20 >> 12,
                Of::LookUp | Of::Space => 0,
                Of::Amap => AMAP_PAGES,
                Of::Loan | Of::Transfer | Of::Pass => n,
            };
            if let Err(problem) = room_for(user, pages * PAGE_SIZE) {
                cell.borrow_mut().failed = Some(problem);
                return;
            }
            let mut meter = Meter { user, model, since: None, sum: None, cycles: 0, host_s: 0.0 };
            let done = match of {
                Of::Loan => loan(&mut meter, n, times),
                Of::Transfer => transfer(&mut meter, n, times),
                Of::Pass => passing(&mut meter, n, times),
                Of::LookUp => look_up(&mut meter, n, times),
                Of::Space => find_space(&mut meter, n, times),
                Of::Amap => amap(&mut meter, n.min(100), times),
                Of::Fork => fork(&mut meter, n, times),
            };
            let outcome = &mut *cell.borrow_mut();
            match done {
                Err((what, errno)) => outcome.fail(what, errno),
                Ok(units) => {
                    let per_call = meter.cycles as f64 / times as f64;
                    outcome.measured = meter.sum;
                    outcome.measured_s = meter.host_s;
                    outcome.results.insert("cycles_per_call".into(), per_call);
                    outcome.results.insert("cycles_per_unit".into(), per_call / units as f64);
                }
            }
        }))
    }
}

/// Makes a measured call. A function of its own, so that `lab/lab/host-costs` can count the host's instructions in it.
#[inline(never)]
fn counted_call<R>(call: impl FnOnce() -> R) -> R {
    call()
}

fn vm_named(what: &'static str) -> impl Fn(VmError) -> CallError {
    move |error| (what, error.into())
}

/// Adds measured calls up.
struct Meter<'a> {
    user: &'a User<Model>,
    model: Model,
    since: Option<(Snapshot, ThreadTime)>,
    sum: Option<Snapshot>,
    cycles: u64,
    host_s: f64,
}

impl<'a> Meter<'a> {
    /// Measures `call`. The accounts of the run, and the host's time, are those from the first measured call to the
    /// last; the cycles are the calls' own.
    fn measure<R>(&mut self, call: impl FnOnce() -> R) -> R {
        let (before, since) =
            self.since.get_or_insert_with(|| (self.model.begin_measuring(), ThreadTime::now())).clone();
        let began = self.user.machine().now();
        let result = counted_call(call);
        self.cycles += self.user.machine().now().saturating_sub(began).0;
        self.host_s = since.elapsed().as_secs_f64();
        self.sum = Some(self.model.snapshot().since(&before));
        result
    }

    /// A buffer of `len_pages` pages, each stored to.
    fn buffer(&self, len_pages: usize, inherit: Inherit) -> Result<Va, CallError> {
        let at = self.user.map(len_pages * PAGE_SIZE, Prot::RW, inherit).map_err(named("map a buffer"))?;
        (0..len_pages).for_each(|page| self.user.store(at + page * PAGE_SIZE, &[1]));
        Ok(at)
    }
}

fn loan(meter: &mut Meter<'_>, pages: usize, times: usize) -> Result<usize, CallError> {
    let user = meter.user;
    let at = meter.buffer(pages, Inherit::None)?;
    for time in 0..=times {
        let call = || -> Result<(), VmError> {
            let lent = user.space().loan_to_kernel(user.thread(), at, pages * PAGE_SIZE)?;
            user.kernel().vm().unloan(lent);
            Ok(())
        };
        once(meter, time, call).map_err(vm_named("lend"))?;
        // Lent pages are write-protected: the next loan finds them as the first did.
        (0..pages).for_each(|page| user.store(at + page * PAGE_SIZE, &[1]));
    }
    Ok(pages)
}

/// Measures a call, but not the first, which finds cold caches.
fn once<R>(meter: &mut Meter<'_>, time: usize, call: impl FnOnce() -> R) -> R {
    if time == 0 { call() } else { meter.measure(call) }
}

fn transfer(meter: &mut Meter<'_>, pages: usize, times: usize) -> Result<usize, CallError> {
    let (user, len_bytes) = (meter.user, pages * PAGE_SIZE);
    let (space, vm) = (user.space(), user.kernel().vm());
    let at = user.map(len_bytes, Prot::RW, Inherit::None).map_err(named("map"))?;
    for time in 0..=times {
        let given = vm.kernel_pages(pages).map_err(vm_named("kernel pages"))?;
        let moved = once(meter, time, || space.transfer_pages(user.thread(), Some(at), given));
        if let Err(refused) = moved {
            vm.free_kernel_pages(refused.back);
            return Err(("transfer", refused.error.into()));
        }
        space.anflush(user.thread(), at, len_bytes).map_err(vm_named("anflush"))?;
    }
    Ok(pages)
}

fn passing(meter: &mut Meter<'_>, pages: usize, times: usize) -> Result<usize, CallError> {
    let (user, len_bytes) = (meter.user, pages * PAGE_SIZE);
    let (own, t) = (user.space(), user.thread());
    let other = user.kernel().vm().space().map_err(vm_named("another address space"))?;
    let mut at = meter.buffer(pages, Inherit::None)?;
    let mut result = Ok(pages);
    for time in 0..=times {
        let there = once(meter, time, || pass(own, &other, t, at, len_bytes, None, PassMode::Donate));
        let back = there.and_then(|there| pass(&other, own, t, there, len_bytes, None, PassMode::Donate));
        match back {
            Ok(back) => at = back,
            Err(e) => {
                result = Err(("pass", e.into()));
                break;
            }
        }
        (0..pages).for_each(|page| user.store(at + page * PAGE_SIZE, &[1]));
    }
    other.terminate(t);
    result
}

/// Maps `entries` pages with a hole of a page between any two, which keeps them apart; says where each is.
fn scattered(
    user: &User<Model>,
    from: Va,
    entries: usize,
) -> Result<impl Fn(usize) -> Va + use<>, CallError> {
    let place = move |index: usize| from + index * 2 * PAGE_SIZE;
    for index in 0..entries {
        let place = MapAddr::Free(place(index));
        let prots = (Prot::RW, Prot::all());
        user.space()
            .map_at(user.thread(), place, PAGE_SIZE, prots, Inherit::None, None)
            .map_err(vm_named("map an entry"))?;
    }
    Ok(place)
}

fn look_up(meter: &mut Meter<'_>, entries: usize, times: usize) -> Result<usize, CallError> {
    let (user, space) = (meter.user, meter.user.space());
    // Far enough up for what is mapped already.
    let place = scattered(user, Va(1 << 24), entries)?;
    for time in 0..=times {
        // A step that is prime to most counts: no two looks in a row find an entry beside the last.
        let at = place(time * 7919 % entries);
        once(meter, time, || space.protect(user.thread(), at, PAGE_SIZE, Prot::RW))
            .map_err(vm_named("look up"))?;
    }
    Ok(1)
}

fn find_space(meter: &mut Meter<'_>, entries: usize, times: usize) -> Result<usize, CallError> {
    let (user, space) = (meter.user, meter.user.space());
    // The entries follow the lowest page that is free, so that there is no room below them.
    let lowest = space
        .map_at(user.thread(), MapAddr::Anywhere, PAGE_SIZE, (Prot::RW, Prot::all()), Inherit::None, None)
        .map_err(vm_named("map a page"))?;
    let place = scattered(user, lowest + 2 * PAGE_SIZE, entries)?;
    for time in 0..=times {
        let map = || user.map(2 * PAGE_SIZE, Prot::RW, Inherit::None);
        let at = once(meter, time, map).map_err(named("map where there is room"))?;
        assert!(at >= place(entries - 1), "{at:?} is in a hole");
        space.unmap(user.thread(), at, 2 * PAGE_SIZE).map_err(vm_named("unmap"))?;
    }
    Ok(1)
}

fn amap(meter: &mut Meter<'_>, percent: usize, times: usize) -> Result<usize, CallError> {
    let (user, len_bytes) = (meter.user, AMAP_PAGES * PAGE_SIZE);
    let in_memory = |page: &usize| page % 100 < percent;
    for time in 0..=times {
        let at = user.map(len_bytes, Prot::RW, Inherit::None).map_err(named("map"))?;
        (0..AMAP_PAGES).filter(in_memory).for_each(|page| user.store(at + page * PAGE_SIZE, &[1]));
        once(meter, time, || user.space().unmap(user.thread(), at, len_bytes)).map_err(vm_named("unmap"))?;
    }
    Ok((0..AMAP_PAGES).filter(in_memory).count())
}

fn fork(meter: &mut Meter<'_>, size_mb: usize, times: usize) -> Result<usize, CallError> {
    let (user, pages) = (meter.user, size_mb << 20 >> 12);
    let at = meter.buffer(pages, Inherit::Copy)?;
    for time in 0..=times {
        let forked: Result<_, Errno> = once(meter, time, || user.fork("child", Box::new(|_| ())));
        forked.map_err(named("fork"))?;
        user.wait().map_err(named("wait"))?;
        // The next fork finds the pages writable again.
        (0..pages).for_each(|page| user.store(at + page * PAGE_SIZE, &[1]));
    }
    Ok(pages)
}
