//! The machine with its kernel, the servers, and the process that begins them again.

use super::application::{ASKED_BYTES, AppRequest, Application};
use super::steps::{APPLICATIONS, AREA_PAGES, By, Deed, MAX_PAGES, Order, PIECES, SERVICES, Servers};
use crate::failure::Failure;
use crate::planted::Planted;
use crate::rig::config;
use crate::whole::{self, MEMORY_MB};
use pageferry_hal::{Board, CodePath, Cycles, Machine as _, Mmu, PAGE_SIZE, Va};
use pageferry_kernel::*;
use pageferry_model::{Model, Options, Schedule};
use pageferry_pmap::{AreaDefect, AreaPaths, EntryChoice};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

type U = User<Model>;

const SPIN_LIMIT: u64 = 1_000_000;
const PATH: CodePath = CodePath::of(20);
/// Steps between two looks at all laws.
const CHECK_EVERY: usize = 16;
/// So many servers see all of the area by reserved entries, and for so many pages others have some: few, so that some
/// have to wait.
const SERVERS_OWN: usize = 3;
const OTHERS_PAGES: usize = 9;
/// Pages for which there are entries where servers need some as well: what all applications have while they wait, and
/// what goes to a server beside what it has. With fewer, all would wait for each other.
const ALL_PAGES: usize = APPLICATIONS * (PIECES - 1) * MAX_PAGES + SERVICES * (2 + MAX_PAGES);
/// What nothing here takes as long as: more is a machine that is stuck.
const CYCLE_LIMIT: u64 = 1_000_000_000;

/// What all processes know.
struct SharedState {
    /// Steps that are to be made, by application; each with its number.
    steps: [RefCell<VecDeque<(usize, Deed)>>; APPLICATIONS],
    /// Nothing is to be served any more.
    over: Cell<bool>,
    /// The processes that serve now.
    servers: [Cell<Option<Pid>>; SERVICES],
    /// The last step that was begun.
    at: Rc<Cell<usize>>,
}

fn ispc(
    by: By,
    board: &Board,
    (defect, area_defect): (Option<IspcDefect>, Option<AreaDefect>),
) -> IspcConfig {
    // Servers see the area by one page of 1 MB, or by pages of 64 KB where there are none.
    let shift = if matches!(board.mmu, Mmu::Soft { large, .. } if !large.contains(&20)) { 16 } else { 20 };
    let (servers, pages) = if by == By::Previous { (0, ALL_PAGES) } else { (SERVERS_OWN, OTHERS_PAGES) };
    let server_entries = servers * ((AREA_PAGES * PAGE_SIZE) >> shift);
    let piece_page_bytes = match board.mmu {
        Mmu::Soft { part: Some(shift), .. } if by == By::ProposedParts => 1 << shift,
        _ => PAGE_SIZE,
    };
    IspcConfig {
        method: by.method(),
        len_bytes: AREA_PAGES * PAGE_SIZE,
        reserved: server_entries + pages * (PAGE_SIZE / piece_page_bytes),
        server_entries,
        server_page_bytes: 1 << shift,
        piece_page_bytes,
        large_pieces: false,
        searches: true,
        pieces: 128,
        files: None,
        net: None,
        paths: IspcPaths::all(PATH),
        area_paths: AreaPaths::all(PATH),
        defect: defect.into(),
        area_defect: area_defect.into(),
    }
}

impl Servers {
    /// Runs it on a machine, and looks at what is left behind.
    ///
    /// # Errors
    /// At which step what was wrong.
    pub(crate) fn run(
        &self,
        machine: &str,
        schedule: Schedule,
        defect: Option<Planted>,
    ) -> Result<(), Failure> {
        let defects = match defect {
            Some(Planted::Ispc(defect)) => (Some(defect), None),
            Some(Planted::Area(defect)) => (None, Some(defect)),
            _ => (None, None),
        };
        let options = Options::new(schedule).spin_limit(SPIN_LIMIT).cycle_limit(Cycles(CYCLE_LIMIT));
        let m = Model::flat(&config(machine, MEMORY_MB), options).expect("a valid machine");
        let mut config = whole::kernel(machine, &m, None, 0);
        config.net = None;
        config.ispc = Some(ispc(self.by, &m.board(), defects));
        if self.by != By::Random && EntryChoice::UnusedFirst.is_possible(&m.board()) {
            config.pmap.choice = EntryChoice::UnusedFirst;
        }
        let at = Rc::new(Cell::new(0));
        let known = Rc::new(SharedState {
            steps: Default::default(),
            over: Cell::new(false),
            servers: Default::default(),
            at: at.clone(),
        });
        for (i, deed) in self.steps.iter().enumerate() {
            known.steps[deed.application % APPLICATIONS].borrow_mut().push_back((i, *deed));
        }
        whole::run(&m, config, &at, move |u| live(u, &known))
    }
}

/// The first process: it begins the others again when they have died, and ends the servers when no application is left.
fn live(u: &U, known: &Rc<SharedState>) {
    for service in 0..SERVICES {
        let known = known.clone();
        let nurse = move |u: &U| {
            while !known.over.get() {
                let its = known.clone();
                let pid = u.fork("server", Box::new(move |u| serve(u, service, &its)));
                known.servers[service].set(pid.ok());
                u.wait().expect("it has a child");
            }
            known.servers[service].set(None);
        };
        u.fork("nurse", Box::new(nurse)).expect("there is memory");
    }
    let mut applications = 0;
    for number in 0..APPLICATIONS {
        let known = known.clone();
        let nurse = move |u: &U| {
            while !known.steps[number].borrow().is_empty() {
                let its = known.clone();
                u.fork("application", Box::new(move |u| apply(u, number, &its))).expect("there is memory");
                u.wait().expect("it has a child");
            }
        };
        u.fork("nurse", Box::new(nurse)).expect("there is memory");
        applications += 1;
    }
    (0..applications).for_each(|_| _ = u.wait().expect("they end"));
    known.over.set(true);
    // One that is not waiting at the time takes a signal for nothing.
    while known.servers.iter().any(|server| server.get().is_some()) {
        known.servers.iter().filter_map(Cell::get).for_each(|pid| _ = u.signal(pid));
        u.sleep_for(Cycles(20_000)).expect("nobody signals this one");
    }
    (0..SERVICES).for_each(|_| _ = u.wait().expect("they end"));
}

/// An application's life: to the end of its steps, or to its own.
fn apply(u: &U, number: usize, known: &SharedState) {
    let mut application = Application::new(u, SERVICES);
    loop {
        let next = known.steps[number].borrow_mut().pop_front();
        let Some((i, deed)) = next else { break };
        known.at.set(i);
        if !application.step(deed.op) {
            return;
        }
        // On several CPUs others are in the middle of something.
        if i % CHECK_EVERY == 0 && u.machine().cpus().len() == 1 {
            u.kernel().check().unwrap_or_else(|law| panic!("a law is broken: {law}"));
        }
    }
    application.end();
}

/// A server's life: to its death, or until nothing is to be served.
fn serve(u: &U, service: usize, known: &Rc<SharedState>) {
    if u.ispc_crosses() {
        let procedure = move |u: &U, request: &Inquiry| {
            if !work(u, service, request) {
                u.store(Va(0x20), &[1]);
            }
        };
        if u.ispc_serve_by(service as u32, Box::new(procedure)).is_ok() {
            while !known.over.get() && !u.is_killed() {
                _ = u.ispc_receive(Wait::Yes);
            }
        }
        return;
    }
    if u.ispc_serve(service as u32).is_err() {
        return;
    }
    while !known.over.get() {
        match u.ispc_receive(Wait::Yes) {
            Ok(request) => {
                if !work(u, service, &request) {
                    return;
                }
                assert_eq!(u.ispc_return(request.id), Ok(()), "its own request");
            }
            Err(Errno::Interrupted) => {}
            // No page for a table: another time.
            Err(Errno::WouldBlock | Errno::NoMemory) => _ = u.yield_now(),
            Err(error) => panic!("a server gets no request: {error}"),
        }
    }
}

/// Does what a request asks for; false when it is to be the end of the server.
fn work(u: &U, service: usize, request: &Inquiry) -> bool {
    let mut asked = [0; ASKED_BYTES];
    u.load(request.control, &mut asked);
    let asked = AppRequest::of(asked);
    let Some((data, _)) = request.data else { return true };
    if asked.order == Order::DieFirst {
        return false;
    }
    let mut bytes = vec![0; asked.len];
    u.load(data + asked.offset, &mut bytes);
    bytes.iter_mut().for_each(|b| *b = b.wrapping_add(asked.tag));
    u.store(data + asked.offset, &bytes);
    match asked.order {
        Order::DieLast => return false,
        Order::Linger => _ = u.yield_now(),
        Order::Misbehave => {
            let refused = u.ica_free(data);
            assert!(u.is_killed() || refused == Err(Errno::Busy), "its maker gets it back: {refused:?}");
            for other in [request.id.0 - 1, request.id.0 + 1] {
                let refused = u.ispc_return(RequestId(other));
                assert!(refused.is_err(), "a request that this server has not");
            }
        }
        Order::Forward => forward(u, service, data, asked),
        Order::Work | Order::DieFirst => {}
    }
    true
}

/// The data goes on to the next server, and comes back.
fn forward(u: &U, service: usize, data: Va, asked: AppRequest) {
    // Servers that wait for each other wait for ever: only one of them sends the data on, but where no caller waits.
    if service + 1 >= SERVICES && !u.ispc_crosses() {
        return;
    }
    let Ok(control) = u.ica_alloc(1, Wait::No) else { return };
    u.store(control, &AppRequest { order: Order::Work, ..asked }.bytes());
    loop {
        match u.ispc_request(((service + 1) % SERVICES) as u32, control, Some(data), Wait::Yes) {
            Err(Errno::Interrupted) if !u.is_killed() => {}
            _ => break,
        }
    }
    _ = u.ica_free(control);
}
