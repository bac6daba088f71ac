//! Random programs that communicate by the common area: each reaches what is attached to it, and nothing else.

use crate::common::*;
use crate::ispc::{PAGE, ant, check, load, try_sh4};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_pmap::AreaDefect;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

// ------------------------------------------------------------------------------------------- random programs

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// What the processes of a random world know of it.
#[derive(Default)]
struct World {
    stop: Cell<bool>,
    clients: Cell<usize>,
    /// Whether the server was dead when the thread of this process left it last.
    died_inside: RefCell<BTreeMap<Pid, bool>>,
    /// What its data was whenever a server handed it on, by the thread that was there.
    handed_on: RefCell<BTreeMap<ThreadId, Vec<u64>>>,
}

/// What a server does with a request: it looks at what it got, and changes it. True when its life is to end.
fn random_service(u: &U, request: &Inquiry, dice: &mut Dice) -> bool {
    let stamp = load(u, request.control, 8);
    if stamp == [0xff; 8] {
        return true;
    }
    if let Some((at, len)) = request.data {
        let seed = u64::from_le_bytes(stamp.try_into().unwrap());
        let found = load(u, at, len);
        assert!(u.is_killed() || found == bytes(seed, 0, len), "the server sees what was sent");
        u.store(at, &bytes(seed ^ 1, 0, len));
        if dice.roll(3) == 0 {
            _ = u.yield_now();
        }
    }
    let refused = u.ica_free(request.control);
    assert!(u.is_killed() || refused == Err(Errno::Busy), "its maker gets it back: {refused:?}");
    false
}

/// A server that is crossed into: it lives for so many requests, and dies by its own thread or by that of a client.
fn crossed_server(u: &U, service: u32, mut dice: Dice, world: &Rc<World>) {
    let (left, world) = (Cell::new(20 + dice.roll(60)), world.clone());
    let dice = RefCell::new(dice);
    let procedure = move |u: &U, request: &Inquiry| {
        // Others may come in while this one lets them.
        let mut its = Dice(dice.borrow_mut().roll(1 << 40));
        let over = random_service(u, request, &mut its);
        left.set(left.get().saturating_sub(1));
        if its.roll(8) == 0 {
            // Another server, or this one again.
            let seed = its.roll(1 << 30) << 1;
            if let (Some((at, len)), Ok(control)) = (request.data, u.ica_alloc(1, Wait::No)) {
                let kept = load(u, at, len);
                u.store(control, &seed.to_le_bytes());
                u.store(at, &bytes(seed, 0, len));
                world.handed_on.borrow_mut().entry(u.thread().id()).or_default().push(seed);
                match u.ispc_request(its.roll(3) as u32, control, Some(at), Wait::Yes) {
                    Ok(()) => assert!(u.is_killed() || load(u, at, len) == bytes(seed ^ 1, 0, len)),
                    Err(Errno::WouldBlock) => panic!("a server needs no entries"),
                    Err(_) => {}
                }
                u.store(at, &kept);
                _ = u.ica_free(control);
            }
        }
        match its.roll(30) {
            0 => u.store(Va(0x20), &[1]),
            1 if !u.is_killed() => {
                // It ends while this one is still inside, which sleeps.
                u.signal(u.pid()).unwrap();
                _ = u.sleep_for(Cycles(100_000_000));
            }
            _ if over || world.stop.get() || left.get() == 0 => _ = u.signal(u.pid()),
            _ => {}
        }
        check(u);
        world.died_inside.borrow_mut().insert(request.from, u.is_killed());
    };
    if u.ispc_serve_by(service, Box::new(procedure)).is_ok() {
        while u.ispc_receive(Wait::Yes) == Err(Errno::WouldBlock) {}
    }
}

/// A server of random programs, which dies in the end, perhaps in the middle of something.
fn random_server(u: &U, service: u32, mut dice: Dice, world: &Rc<World>) {
    if u.ispc_crosses() {
        return crossed_server(u, service, dice, world);
    }
    if u.ispc_serve(service).is_err() {
        return;
    }
    let life = 20 + dice.roll(60);
    for _ in 0..life {
        if world.stop.get() {
            break;
        }
        let request = match u.ispc_receive(if dice.roll(8) == 0 { Wait::No } else { Wait::Yes }) {
            Ok(request) => request,
            Err(Errno::WouldBlock) => {
                _ = u.yield_now();
                continue;
            }
            Err(_) => break,
        };
        if random_service(u, &request, &mut dice) {
            _ = u.ispc_return(request.id);
            break;
        }
        assert_eq!(u.ispc_return(RequestId(request.id.0 ^ 1 << 20)), Err(Errno::Invalid));
        match dice.roll(30) {
            0 => return,
            1 => {
                u.store(Va(0x20), &[1]);
                return;
            }
            _ => u.ispc_return(request.id).unwrap(),
        }
        check(u);
    }
}

/// An application of random programs; now and then a child touches what it has not.
fn random_client(u: &U, mut dice: Dice, steps: u64, world: &World) {
    let method = u.kernel().config().ispc.unwrap().method;
    let pages = 1 + dice.roll(3) as usize;
    let [Ok(control), Ok(mut data)] = [1, pages].map(|n| u.ica_alloc(n, Wait::Yes)) else { return };
    let mut len = pages * PAGE;
    for step in 0..steps {
        let seed = dice.roll(1 << 30) << 1;
        match dice.roll(10) {
            0..6 => {
                u.store(control, &seed.to_le_bytes());
                u.store(data, &bytes(seed, 0, len));
                world.handed_on.borrow_mut().remove(&u.thread().id());
                let whole = dice.roll(2) == 0 || u.ispc_crosses();
                let service = dice.roll(3) as u32;
                let result = if whole {
                    u.ispc_request(service, control, Some(data), Wait::Yes)
                } else {
                    u.ispc_post(service, control, Some(data)).and_then(|id| {
                        if dice.roll(3) == 0 {
                            u.yield_now()?;
                            assert!(u.ispc_return(id).is_err(), "only its server may answer");
                        }
                        u.ispc_result(Wait::Yes)?.outcome
                    })
                };
                let found = load(u, data, len);
                match result {
                    Ok(()) => {
                        assert!(found == bytes(seed ^ 1, 0, len), "what the server has written");
                        let died = world.died_inside.borrow_mut().remove(&u.pid());
                        assert_ne!(died, Some(true), "its caller is told");
                    }
                    Err(Errno::ConnectionRefused) => assert!(found == bytes(seed, 0, len), "as it was"),
                    Err(Errno::ConnectionReset) => {
                        let handed_on = world.handed_on.borrow_mut().remove(&u.thread().id());
                        let mut seeds = handed_on.into_iter().flatten().chain([seed]);
                        let is_of = |seed| found == bytes(seed, 0, len) || found == bytes(seed ^ 1, 0, len);
                        assert!(seeds.any(is_of), "what somebody has written who had it");
                    }
                    Err(error) => panic!("step {step}: {error}"),
                }
            }
            6 => {
                u.ica_free(data).unwrap();
                len = PAGE;
                data = u.ica_alloc(1, Wait::Yes).unwrap();
                assert!(load(u, data, len) == vec![0; len], "clear");
            }
            7 => {
                // Whatever is there is another's: this one's child has nothing.
                let at = data + dice.roll(20) as usize * PAGE;
                let own = dice.roll(2) == 0;
                let toucher = move |u: &U| {
                    let mine = own.then(|| u.ica_alloc(1, Wait::No).ok()).flatten();
                    if mine == Some(at) {
                        return;
                    }
                    assert_eq!(load(u, at, 16), [0; 16], "never a byte");
                    assert!(u.is_killed(), "{method:?}: the touch of {at:?} is an exception");
                };
                let area = u.kernel().vm().pmaps().area_range().unwrap();
                if area.contains(at) && u.fork("toucher", Box::new(toucher)).is_ok() {
                    u.wait().unwrap();
                }
            }
            8 => {
                // Enough that all of the space is flushed when it goes: but for what is reserved.
                let at = map(u, 40 * PAGE);
                (0..40).for_each(|page| u.store(at + page * PAGE, &[1]));
                u.unmap(at, 40 * PAGE).unwrap();
                u.compute(Instructions(dice.roll(5000) as u32));
            }
            _ => u.yield_now().unwrap(),
        }
        check(u);
    }
}

/// Three servers that die and are replaced, and four applications.
fn random_world(config: KernelConfig, seed: u64, steps: u64) -> Ended {
    try_sh4(config, 3, random_life(seed, steps))
}

/// The first process of such a world.
pub fn random_life(seed: u64, steps: u64) -> impl FnOnce(&U) {
    move |u| {
        let world = Rc::new(World::default());
        let mut dice = Dice(seed);
        for service in 0..3 {
            let (world, mut dice) = (world.clone(), Dice(dice.roll(1 << 40)));
            let nurse = move |u: &U| {
                while !world.stop.get() {
                    let (its_world, its) = (world.clone(), Dice(dice.roll(1 << 40)));
                    let server = move |u: &U| random_server(u, service, its, &its_world);
                    u.fork("server", Box::new(server)).unwrap();
                    u.wait().unwrap();
                }
            };
            u.fork("nurse", Box::new(nurse)).unwrap();
        }
        for _ in 0..4 {
            let dice = Dice(dice.roll(1 << 40));
            let world = world.clone();
            world.clients.set(world.clients.get() + 1);
            let client = move |u: &U| {
                random_client(u, dice, steps, &world);
                world.clients.set(world.clients.get() - 1);
            };
            u.fork("client", Box::new(client)).unwrap();
        }
        while world.clients.get() > 0 {
            u.sleep_for(Cycles(1_000_000)).unwrap();
        }
        world.stop.set(true);
        // Servers that wait are told to end.
        let control = u.ica_alloc(1, Wait::Yes).unwrap();
        for service in 0..3 {
            u.store(control, &[0xff; 8]);
            _ = u.ispc_request(service, control, None, Wait::Yes);
        }
        (0..7).for_each(|_| _ = u.wait().unwrap());
    }
}

#[test]
fn random_programs_reach_what_is_theirs_and_nothing_else() {
    let seeds: u64 = std::env::var("PAGEFERRY_SEEDS").ok().map_or(1, |s| s.parse().expect("a number"));
    for method in [Method::Random, Method::Previous, Method::Proposed, Method::Migrating] {
        for seed in 0..2 * seeds {
            let ended = random_world(ant(method), seed, 60);
            sound(&ended, &format!("{method:?}, seed {seed}"));
            let killed = ended.kernel.as_ref().unwrap().killed().len();
            assert!(killed > 5, "{killed} touches of what was another's");
        }
    }
}

#[test]
fn every_defect_is_caught() {
    let looks = |config: KernelConfig| {
        (0..6).any(|seed| {
            let ended = random_world(config, seed, 60);
            let kernel = ended.kernel.as_ref();
            ended.result.is_err()
                || !ended.m.stale_uses().is_empty()
                || kernel.is_none_or(|kernel| kernel.check_quiescent().is_err())
        })
    };
    for &defect in IspcDefect::ALL.iter().filter(|d| !d.needs_a_card() && !d.needs_large_pieces()) {
        let mut config = ant(match defect {
            IspcDefect::NotAttached => Method::Random,
            IspcDefect::SpaceKept | IspcDefect::InsideForgotten | IspcDefect::DeathUntold => {
                Method::Migrating
            }
            _ => Method::Proposed,
        });
        let its = config.ispc.as_mut().unwrap();
        its.defect = defect.into();
        if defect == IspcDefect::SilentlyByTable {
            its.reserved = 12;
        }
        assert!(looks(config), "{defect:?} is not caught");
    }
    for &defect in AreaDefect::ALL {
        let mut config = ant(Method::Previous);
        config.ispc.as_mut().unwrap().area_defect = defect.into();
        assert!(looks(config), "{defect:?} is not caught");
    }
}
