//! A port of one's own: a machine of one CPU and 16 MB, with page tables of i386 and no TLB, on which `pmap` runs.
//!
//! `cargo run -p pageferry-pmap --example port`

use pageferry_hal::isa::radix::{PTE_A, PTE_D, PTE_P, PTE_PS, PTE_U, PTE_W};
use pageferry_hal::isa::x86::{I386, I386_LAYOUT};
use pageferry_hal::{
    Access, Account, Asid, Block, BlockRegister, Board, Cause, CodePath, Context, ContextId, CopyFault,
    CpuId, CpuSet, Cycles, Flush, HashTable, Instructions, Interrupt, LockClass, Machine, Mmu, Mode, Oracle,
    PAGE_SIZE, Pa, Pfn, Prot, Recorder, Refill, Slot, SpinLock, Tlb, Trap, TrapKind, Tte, Va, VaRange, Width,
};
use pageferry_pmap::{FrameSource, PmapConfig, PmapPaths, Pmaps};
use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

const FRAMES: usize = 4096;

// ANCHOR: machine
/// A handle; all clones are the same machine.
#[derive(Clone)]
struct Toy(Rc<Hardware>);

struct Hardware {
    memory: RefCell<Vec<u8>>,
    root: Cell<Pa>,
    clock: Cell<u64>,
}

impl Toy {
    fn word(&self, at: Pa) -> u64 {
        let bytes = &self.0.memory.borrow()[at.0 as usize..][..4];
        u64::from(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    fn set_word(&self, at: Pa, value: u64) {
        self.0.memory.borrow_mut()[at.0 as usize..][..4].copy_from_slice(&(value as u32).to_le_bytes());
    }

    /// What hardware does at every access, as there is no TLB: it walks the tables and notes the use.
    fn translate(&self, mode: Mode, va: Va, access: Access) -> Result<Pa, TrapKind> {
        let store = access == Access::Write;
        let mut table = self.0.root.get();
        for level in (0..I386.levels).rev() {
            let slot = I386.slot(table, va, level);
            let entry = self.word(slot);
            if entry & PTE_P == 0 {
                return Err(TrapKind::NotPresent);
            }
            if (mode == Mode::User && entry & PTE_U == 0) || (store && entry & PTE_W == 0) {
                return Err(TrapKind::Protection);
            }
            let leaf = level == 0 || entry & PTE_PS != 0;
            self.set_word(slot, entry | PTE_A | if leaf && store { PTE_D } else { 0 });
            table = I386.frame(entry).pa();
            if leaf {
                return Ok(table + (va.0 & ((1 << I386.shift(level)) - 1)) as usize);
            }
        }
        unreachable!("the last level is a leaf");
    }

    /// Takes an access apart into pages. `each` is given where in memory, where in the access, and how much.
    fn pages(
        &self,
        (mode, va, len_bytes, access): (Mode, Va, usize, Access),
        mut each: impl FnMut(&mut [u8], usize),
    ) -> Result<(), CopyFault> {
        let mut done_bytes = 0;
        while done_bytes < len_bytes {
            let va = va + done_bytes;
            let part = (PAGE_SIZE - va.0 as usize % PAGE_SIZE).min(len_bytes - done_bytes);
            let refused = |kind| CopyFault { done_bytes, trap: Trap { va, access, mode, kind } };
            let at = self.translate(mode, va, access).map_err(refused)?;
            each(&mut self.0.memory.borrow_mut()[at.0 as usize..][..part], done_bytes);
            done_bytes += part;
        }
        Ok(())
    }

    fn copy(&self, to: (Mode, Va), from: (Mode, Va), len_bytes: usize) -> Result<(), CopyFault> {
        let mut bytes = vec![0; len_bytes];
        self.load(from.0, from.1, &mut bytes)?;
        self.store(to.0, to.1, &bytes)
    }
}

impl Machine for Toy {
    type Lock<T: 'static> = Lock<T>;

    fn board(&self) -> Board {
        Board {
            cpus: 1,
            frames: FRAMES,
            pointer: Width::Four,
            layout: I386_LAYOUT,
            device_memory: None,
            mmu: Mmu::Radix(I386),
            asids: 0,
            blocks: None,
            broadcasts_flushes: false,
            colours: 1,
            writes_through: false,
            instruction_bytes: 4,
            fetches: false,
            huge_pages: false,
        }
    }
    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn now(&self) -> Cycles {
        self.0.clock.set(self.0.clock.get() + 1);
        Cycles(self.0.clock.get())
    }
    fn new_lock<T: 'static>(&self, _: LockClass, value: T) -> Lock<T> {
        Lock(RefCell::new(value))
    }

    fn load(&self, mode: Mode, from: Va, buf: &mut [u8]) -> Result<(), CopyFault> {
        let access = (mode, from, buf.len(), Access::Read);
        self.pages(access, |memory, at| buf[at..][..memory.len()].copy_from_slice(memory))
    }
    fn store(&self, mode: Mode, to: Va, bytes: &[u8]) -> Result<(), CopyFault> {
        let access = (mode, to, bytes.len(), Access::Write);
        self.pages(access, |memory, at| memory.copy_from_slice(&bytes[at..][..memory.len()]))
    }
    fn fetch(&self, _: Mode, _: Va, _: Instructions) -> Result<(), CopyFault> {
        Ok(())
    }
    fn copy_in(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyFault> {
        self.copy((Mode::Kernel, to), (Mode::User, from), len_bytes)
    }
    fn copy_out(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyFault> {
        self.copy((Mode::User, to), (Mode::Kernel, from), len_bytes)
    }
    fn copy_kernel(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyFault> {
        self.copy((Mode::Kernel, to), (Mode::Kernel, from), len_bytes)
    }
    fn zero(&self, to: Va, len_bytes: usize) -> Result<(), CopyFault> {
        self.pages((Mode::Kernel, to, len_bytes, Access::Write), |memory, _| memory.fill(0))
    }

    fn pt_load(&self, at: Pa, _: Width) -> u64 {
        self.word(at)
    }
    fn pt_store(&self, at: Pa, _: Width, value: u64) {
        self.set_word(at, value);
    }
    fn pt_swap(&self, at: Pa, _: Width, value: u64) -> u64 {
        let old = self.word(at);
        self.set_word(at, value);
        old
    }
    fn pt_replace(&self, at: Pa, width: Width, old: u64, new: u64) -> Result<(), u64> {
        let is = self.word(at);
        if is == old {
            self.pt_store(at, width, new);
            return Ok(());
        }
        Err(is)
    }
    fn pt_clear(&self, at: Pa) {
        self.0.memory.borrow_mut()[at.0 as usize..][..PAGE_SIZE].fill(0);
    }

    fn activate(&self, context: Context) {
        self.0.root.set(context.root);
    }
    /// There is no TLB to flush.
    fn tlb_flush(&self, _: Flush) {}

    // One CPU and one thread of control, which nothing interrupts.
    fn send_ipi(&self, _: CpuSet, _: Interrupt) {}
    fn set_timer(&self, _: Option<Cycles>) {}
    fn set_interrupt_handler(&self, _: Box<dyn Fn(Interrupt)>) {}
    fn spin_until(&self, done: &mut dyn FnMut() -> bool) {
        assert!(done(), "nobody will do it");
    }
    fn idle_until(&self, done: &mut dyn FnMut() -> bool) {
        assert!(done(), "nobody will do it");
    }
    fn context_new(&self, _: &str, _: Box<dyn FnOnce() -> Option<ContextId>>) -> ContextId {
        unimplemented!("a second thread")
    }
    fn context_current(&self) -> ContextId {
        ContextId(0)
    }
    fn context_switch(&self, _: ContextId) {
        unimplemented!("a second thread")
    }
    fn start_cpu(&self, _: CpuId, _: ContextId) {
        unimplemented!("a second CPU")
    }
}
// ANCHOR_END: machine

// ANCHOR: empty
impl Account for Toy {
    type Scope = ();
    fn scope(&self, _: Cause) {}
}

impl Oracle for Toy {
    type FlushWindow = ();
    fn open_flush_window(&self) {}
    fn close_flush_window(&self, (): ()) {}
}

impl Recorder for Toy {
    fn flush_line(&self, _: Pa) {}
}

/// The board says that there is none of this, so nobody calls it.
impl Tlb for Toy {
    fn tlb_load(&self, _: Slot, _: Asid, _: Va, _: Tte) {
        unimplemented!("hardware walks page tables")
    }
    fn tlb_random(&self) -> usize {
        unimplemented!("hardware walks page tables")
    }
    fn tlb_search(&self, _: Asid, _: Va) -> Option<usize> {
        unimplemented!("hardware walks page tables")
    }
    fn tlb_reserve(&self, _: usize) {
        unimplemented!("hardware walks page tables")
    }
    fn block_set(&self, _: BlockRegister, _: Option<Block>) {
        unimplemented!("there are no blocks")
    }
    fn set_hash_table(&self, _: HashTable) {
        unimplemented!("hardware walks page tables")
    }
    fn set_refill(&self, _: Refill) {}
    fn translate_refill(&self, _: bool) {}
    fn refill_depth(&self) -> u32 {
        0
    }
    fn dcache_purge(&self, _: Pa, _: u32) {
        unimplemented!("the cache has no colours")
    }
}

/// A lock where there is one CPU: nobody else can hold it.
struct Lock<T>(RefCell<T>);

impl<T> SpinLock<T> for Lock<T> {
    type Guard<'a>
        = RefMut<'a, T>
    where
        T: 'a;
    fn lock(&self) -> RefMut<'_, T> {
        self.0.borrow_mut()
    }
    fn try_lock(&self) -> Option<RefMut<'_, T>> {
        self.0.try_borrow_mut().ok()
    }
}
// ANCHOR_END: empty

// ANCHOR: main
/// Free frames, those behind the kernel's own.
struct Frames(RefCell<Vec<Pfn>>);

impl FrameSource for Frames {
    fn take(&self) -> Option<Pfn> {
        self.0.borrow_mut().pop()
    }
    fn give(&self, frame: Pfn) {
        self.0.borrow_mut().push(frame);
    }
}

pub(crate) fn main() {
    let memory = RefCell::new(vec![0; FRAMES * PAGE_SIZE]);
    let toy = Toy(Rc::new(Hardware { memory, root: Cell::new(Pa(0)), clock: Cell::new(0) }));
    // The kernel's own tables, from an arena of 4 MB, and paths that take no time.
    let config = PmapConfig::new(4 << 20, PmapPaths::all(CodePath::of(0)));
    let (pmaps, boot) = Pmaps::bootstrap(toy.clone(), config).expect("it fits");
    pmaps.init_cpu();
    let frames = Frames(RefCell::new((boot.first_free.0..FRAMES as u32).map(Pfn).collect()));

    // A space with two pages of one frame: one to be written, one to be read.
    let space = pmaps.create(&frames).expect("frames");
    let frame = frames.take().expect("a frame");
    let (here, there) = (Va(0x40_0000), Va(0x7fff_f000));
    for (va, prot) in [(here, Prot::RW), (there, Prot::READ)] {
        pmaps.enter(&frames, &space, va, frame, prot, false).expect("frames").flush(&pmaps);
    }
    pmaps.activate(None, Some(&space));

    toy.store(Mode::User, here, b"pages, not bytes").expect("it may be written");
    let mut read = [0; 16];
    toy.load(Mode::User, there, &mut read).expect("it may be read");
    assert_eq!(&read, b"pages, not bytes");
    let refused = toy.store(Mode::User, there, b"!").expect_err("it may only be read");
    assert_eq!(refused.trap.kind, TrapKind::Protection);
    assert!(pmaps.is_modified(frame), "the walk has noted the store");

    // Write permission goes from all mappings of the frame at once.
    pmaps.page_protect(frame, Prot::READ).flush(&pmaps);
    toy.store(Mode::User, here, b"!").expect_err("nor here, now");
    pmaps.remove(&space, VaRange::new(Va(0x1000), Va(0xbfc0_0000))).flush(&pmaps);
    assert_eq!(pmaps.mappings(frame), 0);
    println!("pmap runs on a machine of one's own");
}
// ANCHOR_END: main
