//! A first mapping, and a first shootdown: CPU 1 reads the page until it is interrupted, under every schedule, and
//! never by a translation that is out of date.
//!
//! `cargo run -p pageferry-model --example first_mapping`

use pageferry_model::prelude::*;
use pageferry_model::sync::{AtomicBool, Ordering};
use std::rc::Rc;

const PAGE: Va = Va(0xc000_0000);

fn kernel(m: &Model) -> Option<ContextId> {
    let tables = Rc::new(Tables::new(m, Pfn(1)));
    tables.map(PAGE, Pfn(100), Attr::WRITE);
    tables.activate();

    let (flushed, here) = (Rc::new(AtomicBool::new(false)), m.clone());
    let done = flushed.clone();
    m.set_interrupt_handler(Box::new(move |_| {
        here.tlb_flush(Flush::Page(Asid::KERNEL, PAGE));
        done.store(true, Ordering::Release);
    }));
    let (other, theirs, told) = (m.clone(), tables.clone(), flushed.clone());
    let reader = m.context_new(
        "reader",
        Box::new(move || {
            theirs.activate();
            while !told.load(Ordering::Acquire) {
                other.load(Mode::Kernel, PAGE, &mut [0]).expect("it is mapped");
            }
            None
        }),
    );
    m.start_cpu(CpuId(1), reader);

    tables.change(PAGE, Some(Tte::page(Pfn(101), Attr::WRITE)), || {
        m.tlb_flush(Flush::Page(Asid::KERNEL, PAGE));
        m.send_ipi(CpuSet::only(CpuId(1)), Interrupt::Shootdown);
        m.spin_until(&mut || flushed.load(Ordering::Acquire));
    });
    None
}

fn main() {
    let machine = MachineConfig::named("xeon-mp").expect("it is built in");
    testing::seeds(&machine, Options::default(), 0..100, kernel);
    testing::seeds(&machine, Options::new(Schedule::pct(3)), 0..100, kernel);
    println!("right under 100 random schedules, and under 100 by priorities");
}
