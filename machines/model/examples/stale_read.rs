//! A page is mapped anew, and one CPU keeps the old translation: it reads the old page.
//!
//! `cargo run -p pageferry-model --example stale_read`

use pageferry_hal::isa::x86::I386;
use pageferry_model::prelude::*;
use std::cell::Cell;
use std::rc::Rc;

/// A kernel page, and the page tables that map it, in frames 1 and 2.
const PAGE: Va = Va(0xc000_0000);
const ROOT: Pa = Pa(0x1000);
const LEAF: Pa = Pa(0x2000);

/// Maps `PAGE` to `frame`. What was mapped there may live in TLBs until the change is over: `invalidate` sees to it.
fn map(m: &Model, frame: Pfn, invalidate: impl FnOnce()) {
    let new = Tte::page(frame, Attr::WRITE);
    let window = m.open_flush_window();
    let old = m.pt_swap(I386.slot(LEAF, PAGE, 0), Width::Four, I386.encode(new));
    // The model judges every use of a translation by what is declared here.
    m.mapping_changed(SpaceId::KERNEL, PAGE, I386.decode(old), Some(new), Some(&window));
    invalidate();
    m.close_flush_window(window);
}

fn read(m: &Model) -> u8 {
    let mut byte = [0];
    m.load(Mode::Kernel, PAGE, &mut byte).expect("it is mapped");
    byte[0]
}

/// A kernel of two CPUs: CPU 1 reads the page all the time, and CPU 0 maps another frame there.
fn kernel(m: &Model, sends_interrupt: bool) -> Option<ContextId> {
    m.pt_store(I386.slot(ROOT, PAGE, 1), Width::Four, I386.encode(Tte::page(LEAF.pfn(), Attr::WRITE)));
    m.poke_frame(Pfn(5), 0, &[5]);
    m.poke_frame(Pfn(6), 0, &[6]);
    map(m, Pfn(5), || {});

    let (flushed, mapped, has_read) =
        (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let (machine, done) = (m.clone(), flushed.clone());
    m.set_interrupt_handler(Box::new(move |_| {
        machine.tlb_flush(Flush::Page(Asid::KERNEL, PAGE));
        done.set(true);
    }));

    let translate = Context { space: SpaceId::KERNEL, root: ROOT, asid: Asid::KERNEL, keep: false };
    m.activate(translate);
    let (other, seen, reads) = (m.clone(), mapped.clone(), has_read.clone());
    let reader = m.context_new(
        "reader",
        Box::new(move || {
            other.activate(translate);
            while !seen.get() {
                read(&other);
                reads.set(true);
            }
            assert_eq!(read(&other), 6, "the page is the new one");
            None
        }),
    );
    m.start_cpu(CpuId(1), reader);

    m.spin_until(&mut || has_read.get());
    map(m, Pfn(6), || {
        m.tlb_flush(Flush::Page(Asid::KERNEL, PAGE));
        if sends_interrupt {
            m.send_ipi(CpuSet::only(CpuId(1)), Interrupt::Shootdown);
            m.spin_until(&mut || flushed.get());
        }
    });
    mapped.set(true);
    None
}

fn main() {
    let machine = MachineConfig::named("xeon-mp").expect("it is built in");

    let wrong = testing::find(&machine, Options::default(), 0..10, |m| kernel(m, false));
    let wrong = wrong.expect("CPU 1 keeps its translation under every seed").to_string();
    println!("{wrong}\n");
    // The oracle's words: who read, who mapped, who changed, and which CPUs held the translation.
    assert!(wrong.contains("used a stale translation: mapped at"));
    assert!(wrong.contains("cached then by {cpu1}, and not invalidated on cpu1"));

    testing::seeds(&machine, Options::default(), 0..100, |m| kernel(m, true));
    println!("with the interrupt: right under 100 seeds");
}
