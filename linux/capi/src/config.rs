//! What a channel is to be, as C says it.

use crate::fault::{Fault, call};
use core::ffi::c_int;
use core::mem::MaybeUninit;
use pageferry::{Config, Level};
use std::time::Duration;

/// The bytes are a copy: a value, from whatever peer.
pub const PF_LEVEL_COPY: u32 = 1;
/// The bytes lie in memory of both, and only the types of a language keep the sender from writing to it. C
/// has no such types, so no C program can ask for it: it is what donated and shared memory has.
pub const PF_LEVEL_TYPED: u32 = 2;
/// The sender's view is frozen by the MMU. The default. It holds against mistakes, and not against a hostile
/// sender.
pub const PF_LEVEL_MMU: u32 = 3;
/// As PF_LEVEL_MMU, and the kernel says before each message is read that nobody can write to it. Between
/// sides that trust each other.
pub const PF_LEVEL_LEASED: u32 = 4;
/// The memory is sealed: nobody can write it again, ever. It holds against a hostile sender.
pub const PF_LEVEL_SEALED: u32 = 5;

/// No channel at all where the level cannot be had. Without it messages are copied then, and
/// pf_sender_level() and pf_receiver_level() say so.
pub const PF_CONFIG_REQUIRE_LEVEL: u32 = 1;
/// Memory is never donated on this channel, which saves a mapping.
pub const PF_CONFIG_NO_DONATIONS: u32 = 2;
/// A side that waits sleeps at once. Without it, it looks for `spin_us` first.
pub const PF_CONFIG_NO_SPIN: u32 = 4;
/// A side that waits never sleeps: for two CPUs that have nothing else to do.
pub const PF_CONFIG_NO_SLEEP: u32 = 8;

const FLAGS: u32 = PF_CONFIG_REQUIRE_LEVEL | PF_CONFIG_NO_DONATIONS | PF_CONFIG_NO_SPIN | PF_CONFIG_NO_SLEEP;

/// What a channel is to be. Each side has one: the sender's says how large pool and ring are, and both say
/// what they will have. Zero is the default of every field but `size`: begin with pf_config_init(), then set
/// what should differ. Later versions of the library have more fields at the end, and take a shorter
/// structure for one whose further fields are zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pf_config {
    /// Bytes of this structure, as the caller was compiled with it: sizeof(pf_config). pf_config_init() sets
    /// it.
    pub size: usize,
    /// Slots of the pool: 1 to 4096. Default 8. Every message that is not copied takes one or more of them
    /// until it is home.
    pub slots: u32,
    /// Messages that are sent and not given back, at most: a power of two from 2 to 4096. Default 64.
    pub capacity: u32,
    /// Bytes of a slot; rounded up to what the MMU maps at a time (2 MB). Default 4 MB.
    pub slot_bytes: usize,
    /// Bytes that the peer can make this side hold, at most: the pool, copies, sealed memory. Default 1 GB.
    pub budget: u64,
    /// Bytes of a message that goes by copy in the ring itself, at most: a multiple of 64, to 1 MB. Default
    /// 16 KB.
    pub inline_bytes: u32,
    /// What loans are to promise: one of PF_LEVEL_*. Default PF_LEVEL_MMU.
    pub level: u32,
    /// PF_CONFIG_*, or-ed. Default none.
    pub flags: u32,
    /// Microseconds that a side which waits looks before it sleeps. Default 20; on a machine with one CPU it
    /// sleeps at once.
    pub spin_us: u32,
    /// Milliseconds that the peer may take for each step of the handshake. Default 10 s.
    pub handshake_ms: u32,
    /// Zero.
    pub reserved: u32,
}

/// Bytes of the structure in the first version of the library. Nobody has a shorter one.
const FIRST_SIZE: usize = 56;
/// No structure is larger: what says so has another thing at this address.
const MAX_SIZE: usize = 4096;
const _: () = assert!(FIRST_SIZE <= size_of::<pf_config>() && size_of::<pf_config>() <= MAX_SIZE);

/// Sets all of a configuration to its defaults. `size` is sizeof(pf_config) where it is called.
///
/// PF_EUSAGE: `config` is NULL, or `size` that of no pf_config.
///
/// # Safety
/// `config` is NULL or has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_config_init(config: *mut pf_config, size: usize) -> c_int {
    call(|| {
        if config.is_null() {
            return Err(Fault::usage("`config` is NULL".to_owned()));
        }
        check_size(size)?;
        // SAFETY: by the caller's promise there are so many bytes, and the first of them are a size.
        unsafe {
            config.cast::<u8>().write_bytes(0, size);
            config.cast::<usize>().write_unaligned(size);
        }
        Ok(())
    })
}

fn check_size(size: usize) -> Result<(), Fault> {
    if (FIRST_SIZE..=MAX_SIZE).contains(&size) {
        return Ok(());
    }
    let size_here = size_of::<pf_config>();
    Err(Fault::usage(format!("`size` is {size}; expected sizeof(pf_config), {size_here} in this version")))
}

/// What the caller wants, for either side. NULL: the defaults.
///
/// # Safety
/// `config` is NULL or has as many bytes as its field `size` says.
pub(crate) unsafe fn read(config: *const pf_config) -> Result<Config, Fault> {
    // What hands out pointers has stores that the types do not see: they are to miss the message, and not to be faults.
    let wanted = Config::new().copy_on_write(true);
    if config.is_null() {
        return Ok(wanted);
    }
    // SAFETY: there is a size at least.
    let size = unsafe { config.cast::<usize>().read_unaligned() };
    check_size(size)?;
    let mut known = MaybeUninit::<pf_config>::zeroed();
    let both = size.min(size_of::<pf_config>());
    // SAFETY: by the caller's promise there are so many bytes; all fields are numbers, of which zero is one.
    let (known, more) = unsafe {
        config.cast::<u8>().copy_to_nonoverlapping(known.as_mut_ptr().cast(), both);
        (known.assume_init(), core::slice::from_raw_parts(config.cast::<u8>().add(both), size - both))
    };
    if more.iter().any(|&byte| byte != 0) {
        let said = "`config` has a field that this version of the library does not know: it is older than the header";
        return Err(Fault::usage(said.to_owned()));
    }
    of(&known, wanted)
}

fn of(known: &pf_config, mut wanted: Config) -> Result<Config, Fault> {
    let pf_config { slots, capacity, slot_bytes, budget, inline_bytes, level, flags, spin_us, .. } = *known;
    if flags & !FLAGS != 0 || known.reserved != 0 {
        let unknown = flags & !FLAGS;
        return Err(Fault::usage(format!(
            "`config` has the flags {unknown:#x} and the reserved field {}; expected PF_CONFIG_* and 0",
            known.reserved
        )));
    }
    if slots != 0 {
        wanted = wanted.slots(slots);
    }
    if capacity != 0 {
        wanted = wanted.capacity(capacity);
    }
    if slot_bytes != 0 {
        wanted = wanted.slot_bytes(slot_bytes);
    }
    if budget != 0 {
        wanted = wanted.budget(budget);
    }
    if inline_bytes != 0 {
        wanted = wanted.inline_bytes(inline_bytes);
    }
    let level = match level {
        0 | PF_LEVEL_MMU => Level::Mmu,
        PF_LEVEL_COPY => Level::Copy,
        PF_LEVEL_LEASED => Level::Leased,
        PF_LEVEL_SEALED => Level::Sealed,
        PF_LEVEL_TYPED => {
            return Err(Fault::usage(
                "`config` has PF_LEVEL_TYPED, which rests on types that C does not have; expected another PF_LEVEL_*"
                    .to_owned(),
            ));
        }
        level => {
            return Err(Fault::usage(format!("`config` has the level {level}; expected one of PF_LEVEL_*")));
        }
    };
    wanted =
        if flags & PF_CONFIG_REQUIRE_LEVEL != 0 { wanted.require_level(level) } else { wanted.level(level) };
    wanted = wanted.donations(flags & PF_CONFIG_NO_DONATIONS == 0);
    match flags & (PF_CONFIG_NO_SPIN | PF_CONFIG_NO_SLEEP) {
        0 if spin_us == 0 => (),
        0 => wanted = wanted.spin(Duration::from_micros(spin_us.into())),
        PF_CONFIG_NO_SPIN if spin_us == 0 => wanted = wanted.spin(Duration::ZERO),
        PF_CONFIG_NO_SLEEP if spin_us == 0 => wanted = wanted.spin(Duration::MAX),
        _ => {
            return Err(Fault::usage(
                "`config` has more than one of PF_CONFIG_NO_SPIN, PF_CONFIG_NO_SLEEP and `spin_us`"
                    .to_owned(),
            ));
        }
    }
    if known.handshake_ms != 0 {
        wanted = wanted.handshake_timeout(Duration::from_millis(known.handshake_ms.into()));
    }
    Ok(wanted)
}

/// As the header calls it.
pub(crate) fn level_number(level: Level) -> c_int {
    let number = match level {
        Level::Copy => PF_LEVEL_COPY,
        Level::Typed => PF_LEVEL_TYPED,
        Level::Mmu => PF_LEVEL_MMU,
        Level::Leased => PF_LEVEL_LEASED,
        Level::Sealed => PF_LEVEL_SEALED,
    };
    number as c_int
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sender_of_c_has_its_own_pages_for_stray_stores() {
        // SAFETY: NULL.
        let defaults = unsafe { read(core::ptr::null()) }.unwrap();
        assert_eq!(defaults, Config::new().copy_on_write(true));
        let mut config = MaybeUninit::<pf_config>::uninit();
        // SAFETY: it has so many bytes.
        assert_eq!(
            unsafe { pf_config_init(config.as_mut_ptr(), size_of::<pf_config>()) },
            crate::fault::PF_OK
        );
        // SAFETY: all zero, or set.
        let mut config = unsafe { config.assume_init() };
        // SAFETY: it has the size that it says.
        assert_eq!(unsafe { read(&raw const config) }.unwrap(), defaults);
        config.slots = 3;
        config.flags = PF_CONFIG_REQUIRE_LEVEL | PF_CONFIG_NO_DONATIONS | PF_CONFIG_NO_SPIN;
        config.level = PF_LEVEL_SEALED;
        let wanted = Config::new().copy_on_write(true).slots(3).require_level(Level::Sealed);
        let wanted = wanted.donations(false).spin(Duration::ZERO);
        // SAFETY: as above.
        assert_eq!(unsafe { read(&raw const config) }.unwrap(), wanted);
    }

    #[test]
    fn a_structure_of_a_later_version_is_taken_while_what_is_new_is_zero() {
        #[repr(C)]
        struct Later {
            config: pf_config,
            more: u64,
        }
        // SAFETY: all of its fields are numbers.
        let mut later: Later = unsafe { core::mem::zeroed() };
        later.config.size = size_of::<Later>();
        // SAFETY: it has the size that it says.
        let read = |later: &Later| unsafe { read(core::ptr::from_ref(later).cast()) };
        assert!(read(&later).is_ok());
        later.more = 1 << 40;
        assert!(read(&later).is_err());
    }
}
