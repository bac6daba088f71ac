//! Many programs, on many machines, on all cores of the host.
//!
//! An episode is one program from a seed; which machine and schedule it gets follows from its number. So an episode is
//! the same on every machine, and the first that fails, by number, is the one that is reported.

use crate::episode::{Program, Scrutiny, Steps, seeded};
use crate::failure::Failure;
use crate::planted::Planted;
use crate::program;
use crate::rig::{MACHINES, reserves, with_shadows};
use crate::servers::Servers;
use crate::shrink::shrink;
use crate::storm::{crowd, storm};
use crate::traffic::Traffic;
use pageferry_calls::Calls;
use pageferry_model::panics::quietly;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Builder;

/// Steps of one episode.
pub const EPISODE_STEPS: u64 = 4000;

/// Beside them, steps where memory is made of shadow objects.
const SHADOW_STEPS: usize = 1000;
/// Steps with sockets.
const TRAFFIC_STEPS: usize = 120;
/// And steps with servers.
const SERVER_STEPS: usize = 240;
/// And steps with files, streams and memory together.
const CALL_STEPS: usize = 240;

/// The machine with the most CPUs, for storms.
const FOUR_CPUS: &str = "xeon-mp-htt";
/// That whose kernel can keep entries of the TLB for itself.
const RESERVES: &str = "sh7751r+unused";

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Soak {
    /// What everything is made from.
    pub seed: u64,
    /// Steps in all, rounded up to whole episodes.
    pub steps: u64,
    /// The only one of [`MACHINES`] to run on; all of them in turn if none is named.
    pub machine: Option<&'static str>,
    /// Seeds give CPUs priorities, for bugs of this depth, and not a turn each to one at random.
    pub depth: Option<u32>,
    /// Host threads.
    pub threads: usize,
    /// A defect to plant, to see it caught.
    pub defect: Option<Planted>,
}

/// A program that failed.
#[derive(Clone, Debug)]
pub struct Found {
    /// The episode, from zero.
    pub episode: u64,
    /// The step of the whole run at which it was noticed, from zero.
    pub step: u64,
    /// The program, as short as could be found.
    pub program: Program,
    /// How it fails.
    pub failure: Failure,
}

/// How a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum SoakError {
    /// A program failed.
    #[error("step {}: {}", .0.step, .0.failure.message)]
    Found(Box<Found>),
    /// The host gave fewer threads than were asked for.
    #[error("{started} threads are running, and no more can be started: {error}")]
    Threads {
        /// How many it gave.
        started: usize,
        /// Why no more.
        error: io::Error,
    },
}

impl From<Found> for SoakError {
    fn from(found: Found) -> SoakError {
        SoakError::Found(Box::new(found))
    }
}

impl Soak {
    /// The program of an episode.
    pub fn program(&self, episode: u64) -> Program {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed.wrapping_add(episode << 32));
        let machine = self.machine_of(episode);
        // The clocks decide in one turn out of three.
        let schedule = (!(episode / MACHINES.len() as u64).is_multiple_of(3)).then_some(self.seed ^ episode);
        let steps = (0..EPISODE_STEPS).map(|_| program::step(&mut rng)).collect();
        Program { machine: machine.into(), schedule, depth: self.depth, steps: Steps::Memory(steps) }
    }

    fn machine_of(&self, turn: u64) -> &'static str {
        self.machine.unwrap_or(MACHINES[(turn % MACHINES.len() as u64) as usize])
    }

    /// What an episode does where memory is made of shadow objects: shorter, as it is beside the others.
    pub fn shadows(&self, episode: u64) -> Program {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed.wrapping_add(episode << 32));
        rng.set_stream(3);
        let schedule = (!episode.is_multiple_of(3)).then_some(self.seed ^ episode);
        let steps = (0..SHADOW_STEPS).map(|_| program::step(&mut rng)).collect();
        let machine = with_shadows(self.machine_of(episode));
        Program { machine, schedule, depth: self.depth, steps: Steps::Memory(steps) }
    }

    /// What an episode does with sockets: over loopback, and under the machine's own timing over the wire, too.
    pub fn traffic(&self, episode: u64) -> Program {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed.wrapping_add(episode << 32));
        rng.set_stream(1);
        let steps = Steps::Traffic(Traffic::random(&mut rng, TRAFFIC_STEPS));
        let schedule = (episode % 2 == 1).then_some(self.seed ^ episode);
        let machine = self.machine_of(episode / 2).into();
        Program { machine, schedule, depth: self.depth, steps }
    }

    /// What an episode does with servers that are processes.
    pub fn servers(&self, episode: u64) -> Program {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed.wrapping_add(episode << 32));
        rng.set_stream(2);
        // Half of them where all methods are.
        let (turn, any) =
            (episode / 2, if episode.is_multiple_of(2) { RESERVES } else { self.machine_of(episode / 2) });
        let machine = self.machine.unwrap_or(any);
        let steps = Steps::Servers(Servers::random(&mut rng, SERVER_STEPS, turn, reserves(machine)));
        let schedule = (episode % 3 == 1).then_some(self.seed ^ episode);
        Program { machine: machine.into(), schedule, depth: self.depth, steps }
    }

    /// What an episode does with files, streams and memory together.
    pub fn calls(&self, episode: u64) -> Program {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed.wrapping_add(episode << 32));
        rng.set_stream(4);
        let steps = Steps::Calls(Calls::random(&mut rng, CALL_STEPS));
        let schedule = (!episode.is_multiple_of(3)).then_some(self.seed ^ episode);
        Program { machine: self.machine_of(episode).into(), schedule, depth: self.depth, steps }
    }

    /// The program that failed, and how; a storm has none.
    fn run_episode(&self, episode: u64) -> Result<(), (Option<Box<Program>>, Failure)> {
        let run = |program: Program| {
            let result = program.run_with(Scrutiny::Usual, self.defect);
            result.map_err(|failure| (Some(Box::new(program)), failure))
        };
        // A defect is looked for where it can be.
        let (in_memory, in_chains, in_sockets, in_servers) = match self.defect {
            None => {
                run(self.calls(episode))?;
                (true, true, true, true)
            }
            Some(defect) if defect.is_of_chains() => (false, true, false, false),
            Some(Planted::Net(_)) => (false, false, true, false),
            Some(Planted::Ispc(_) | Planted::Area(_)) => (false, false, false, true),
            Some(Planted::Vm(_) | Planted::Pmap(_)) => (true, false, false, false),
        };
        if in_memory {
            run(self.program(episode))?;
            self.storms(episode).map_err(|failure| (None, failure))?;
        }
        if in_chains {
            run(self.shadows(episode))?;
        }
        if in_sockets {
            run(self.traffic(episode))?;
        }
        if in_servers {
            run(self.servers(episode))?;
        }
        Ok(())
    }

    fn storms(&self, episode: u64) -> Result<(), Failure> {
        // Two lenders and two writers meet on four CPUs only: every other storm is there.
        let turn = (episode / 2 % MACHINES.len() as u64) as usize;
        let any = if episode.is_multiple_of(2) { FOUR_CPUS } else { MACHINES[turn] };
        let machine = self.machine.unwrap_or(any);
        let seed = self.seed ^ episode;
        let schedule = seeded(seed, self.depth);
        let over = storm(machine, schedule, self.defect);
        let over = over.and_then(|()| crowd(machine, schedule, seed, self.defect));
        over.map_err(|message| {
            let message = format!("in a storm on {machine}, {schedule}: {message}");
            Failure { step: EPISODE_STEPS as usize, message }
        })
    }

    /// Runs all episodes; `done` is told of steps that are done and answers whether to go on. Gives the steps that were
    /// run.
    ///
    /// # Errors
    /// The first episode that failed, shrunk; or the host does not give the threads.
    pub fn run(&self, done: &(dyn Fn(u64) -> bool + Sync)) -> Result<u64, SoakError> {
        let episodes = self.steps.div_ceil(EPISODE_STEPS);
        let (next, run, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let work = || {
            let mut failed = None;
            while failed.is_none() && !stop.load(Ordering::Relaxed) {
                let episode = next.fetch_add(1, Ordering::Relaxed);
                if episode >= episodes {
                    break;
                }
                match quietly(|| self.run_episode(episode)).0 {
                    Ok(()) => {
                        run.fetch_add(EPISODE_STEPS, Ordering::Relaxed);
                        if !done(EPISODE_STEPS) {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                    Err((program, failure)) => {
                        stop.store(true, Ordering::Relaxed);
                        failed = Some((episode, program, failure));
                    }
                }
            }
            failed
        };
        let first = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for started in 0..self.threads.max(1) {
                match Builder::new().spawn_scoped(scope, work) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        return Err(SoakError::Threads { started, error });
                    }
                }
            }
            let failed = threads.into_iter().filter_map(|t| t.join().expect("the thread catches panics"));
            Ok(failed.min_by_key(|(episode, ..)| *episode))
        })?;
        match first {
            None => Ok(run.into_inner()),
            Some((episode, program, failure)) => {
                let step = episode * EPISODE_STEPS + failure.step as u64;
                let Some(program) = program else {
                    // It was a storm: no step of the program matters.
                    let program = Program { steps: Steps::Memory(Vec::new()), ..self.program(episode) };
                    return Err(Found { episode, step, program, failure }.into());
                };
                let (program, failure) = quietly(|| shrink(*program, failure, self.defect)).0;
                Err(Found { episode, step, program, failure }.into())
            }
        }
    }
}
