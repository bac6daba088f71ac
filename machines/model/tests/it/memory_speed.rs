//! How fast a machine reads, writes and copies memory, as `lmbench` would measure it, against what was published of it.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::*;
use pageferry_hal::{Machine, Mode, PAGE_SIZE, Va};
use pageferry_model::{MachineConfig, Model, Options};

const SOURCE: Va = Va(0xc000_0000);
const TARGET: Va = Va(0xc080_0000);
/// What `lmbench` moves to leave every cache behind.
const LARGE: usize = 4 << 20;

fn pentium_pro() -> MachineConfig {
    MachineConfig::named("pentium-pro").expect("it is built in")
}

/// Maps two buffers of `len_bytes`, whose frames follow each other, and runs `once` on them again and again. Gives MB/s
/// of `len_bytes`, in the steady state.
fn speed(config: &MachineConfig, len_bytes: usize, once: impl Fn(&Model, usize) + 'static) -> f64 {
    const ROUNDS: u64 = 8;
    let model = Model::new(config, Options::default()).expect("a machine");
    let took = Rc::new(Cell::new(0));
    let result = took.clone();
    let boot = move |m: &Model| {
        let tables = ByHand::new();
        let pages = len_bytes / PAGE_SIZE;
        for (base, first_frame) in [(SOURCE, 16), (TARGET, 16 + pages)] {
            for page in 0..pages {
                let va = base + page * PAGE_SIZE;
                // A table maps 4 MB.
                if page % 1024 == 0 {
                    tables.grow(m, va);
                }
                ByHand::map(m, va, (first_frame + page) as u32, RW);
            }
        }
        tables.activate(m);
        once(m, len_bytes);
        let start = m.now();
        for _ in 0..ROUNDS {
            once(m, len_bytes);
        }
        took.set(m.now().0 - start.0);
        None
    };
    model.run(Box::new(boot)).expect("runs");
    model.check().expect("the laws hold");
    (len_bytes as u64 * ROUNDS * config.cpu.clock_mhz.value) as f64 / result.get() as f64
}

fn read(m: &Model, len_bytes: usize) {
    let mut page = [0; PAGE_SIZE];
    for at in (0..len_bytes).step_by(PAGE_SIZE) {
        m.load(Mode::Kernel, SOURCE + at, &mut page).expect("mapped");
    }
}

fn write(m: &Model, len_bytes: usize) {
    m.zero(TARGET, len_bytes).expect("mapped");
}

fn copy(m: &Model, len_bytes: usize) {
    m.copy_kernel(TARGET, SOURCE, len_bytes).expect("mapped");
}

#[track_caller]
fn assert_near(what: &str, published: f64, here: f64, percent: f64) {
    let off = (here / published - 1.0) * 100.0;
    println!("{what}: published {published} MB/s, here {here:.1} ({off:+.1} %)");
    assert!(off.abs() <= percent, "{what}: published {published} MB/s, here {here:.1} ({off:+.1} %)");
}

/// UVM paper, 5: main memory as `lmbench` reports it. The machine's file has none of these rates: they come of its
/// chips, its bus, and of what its CPU leaves under way. Two more such machines are in the tables of `lmbench`: 205 and
/// 214 MB/s read, 56 and 86 written, 42 to 65 copied.
#[test]
fn the_pentium_pro_reads_writes_and_copies_memory_as_published() {
    let config = pentium_pro();
    assert_near("read", 225.0, speed(&config, LARGE, read), 10.0);
    assert_near("write", 82.0, speed(&config, LARGE, write), 10.0);
    assert_near("copy", 50.0, speed(&config, LARGE, copy), 5.0);
}

/// UVM paper, 5.2: copies from the kernel to a process, by where the buffers fit. System calls and sockets take their
/// share of the published rates, so the bare copy is faster, and the most at 4 KB.
#[test]
fn the_pentium_pro_copies_by_cache_level() {
    let config = pentium_pro();
    let at = |kb: usize| speed(&config, kb << 10, copy);
    let rates: Vec<(usize, f64)> = [4, 8, 16, 32, 64, 128, 256, 512, 1024].map(|kb| (kb, at(kb))).into();
    println!("{rates:.0?}");
    let of = |kb| rates.iter().find(|r| r.0 == kb).expect("measured").1;
    assert!(of(4) > 315.0, "4 KB stay in the first level: {}", of(4));
    for kb in [8, 16, 32, 64] {
        assert!((225.0..265.0).contains(&of(kb)), "{kb} KB stay in the second level: {}", of(kb));
    }
    assert!(of(128) > 150.0, "two buffers of 128 KB just fit: {}", of(128));
    for kb in [256, 512, 1024] {
        assert_near("copy beyond the caches", 50.0, of(kb), 5.0);
    }
}
