//! The two file systems beside each other: the same calls about names and bytes, below `/mnt` and in the root, are
//! answered the same, whatever they are. And what spans both.

use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_vm::Inherit;
use proptest::prelude::*;

const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const MAKE: OpenFlags = RW.union(OpenFlags::CREATE);

/// A call about names.
#[derive(Clone, Debug)]
enum Step {
    Make(String, u8),
    MakeNew(String),
    Read(String),
    Mkdir(String),
    Rmdir(String),
    Unlink(String),
    Rename(String, String),
    Link(String, String),
    Stat(String),
    List(String),
}

/// Paths that meet often, with all that a path may have in it.
fn path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "d", "e", ".", "..", "", "a", "d"]);
    let names = prop::collection::vec(name, 1..4);
    (names, any::<bool>()).prop_map(|(names, slash)| {
        let path = names.join("/");
        if slash && !path.is_empty() { format!("{path}/") } else { path }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (path(), any::<u8>()).prop_map(|(p, n)| Step::Make(p, n)),
        1 => path().prop_map(Step::MakeNew),
        2 => path().prop_map(Step::Read),
        3 => path().prop_map(Step::Mkdir),
        1 => path().prop_map(Step::Rmdir),
        1 => path().prop_map(Step::Unlink),
        3 => (path(), path()).prop_map(|(a, b)| Step::Rename(a, b)),
        1 => (path(), path()).prop_map(|(a, b)| Step::Link(a, b)),
        2 => path().prop_map(Step::Stat),
        2 => path().prop_map(Step::List),
    ]
}

/// Does a call, with all paths below `root`; its answer in words.
fn answer(u: &U, root: &str, buffer: Va, step: &Step) -> String {
    let at = |path: &String| format!("{root}/{path}");
    let closed = |opened: Result<Fd, Errno>| opened.map(|fd| u.close(fd).unwrap());
    match step {
        Step::Make(path, byte) => {
            let opened = u.open(&at(path), MAKE | OpenFlags::TRUNCATE);
            if let Ok(fd) = opened {
                u.store(buffer, &[*byte; 100]);
                assert_eq!(u.write(fd, buffer, *byte as usize % 100), Ok(*byte as usize % 100));
            }
            format!("{:?}", closed(opened))
        }
        Step::MakeNew(path) => format!("{:?}", closed(u.open(&at(path), MAKE | OpenFlags::EXCLUSIVE))),
        Step::Read(path) => {
            let opened = u.open(&at(path), OpenFlags::READ);
            let mut bytes = Vec::new();
            if let Ok(fd) = opened {
                bytes.resize(u.read(fd, buffer, 4096).unwrap(), 0);
                u.load(buffer, &mut bytes);
            }
            format!("{:?} {bytes:?}", closed(opened))
        }
        Step::Mkdir(path) => format!("{:?}", u.mkdir(&at(path))),
        Step::Rmdir(path) => format!("{:?}", u.rmdir(&at(path))),
        Step::Unlink(path) => format!("{:?}", u.unlink(&at(path))),
        Step::Rename(from, to) => format!("{:?}", u.rename(&at(from), &at(to))),
        Step::Link(from, to) => format!("{:?}", u.link(&at(from), &at(to))),
        // How long a directory is, is each file system's own affair.
        Step::Stat(path) => format!(
            "{:?}",
            u.stat(&at(path)).map(|stat| {
                (stat.is_directory, stat.links, if stat.is_directory { 0 } else { stat.size_bytes })
            })
        ),
        Step::List(path) => format!(
            "{:?}",
            u.list(&at(path)).map(|mut entries| {
                entries.sort();
                entries
            })
        ),
    }
}

fn compare(steps: &[Step]) -> Result<(), String> {
    let steps = steps.to_vec();
    let (name, config) = kernels().pop().map(|(_, name, config)| (name, config)).unwrap();
    let found = std::rc::Rc::new(std::cell::RefCell::new(None));
    let told = found.clone();
    run(name, Schedule::Timed, config, move |u: &U| {
        u.attach_memory_disk(2 << 20).unwrap();
        u.make_volume(VolumeFormat::of_blocks(1024)).unwrap();
        let buffer = u.map(4096, Prot::RW, Inherit::Copy).unwrap();
        // So deep that no path leads out of it.
        for dir in ["/own", "/own/x", "/own/x/y", "/own/x/y/z"] {
            u.mkdir(dir).unwrap();
            u.mkdir(&format!("/mnt{dir}")).unwrap();
        }
        let memory = "/own/x/y/z";
        for (i, step) in steps.iter().enumerate() {
            let (volume, memory) =
                (answer(u, &format!("/mnt{memory}"), buffer, step), answer(u, memory, buffer, step));
            if volume != memory {
                *told.borrow_mut() =
                    Some(format!("step {i}, {step:?}: the volume answers {volume}, the other {memory}"));
                break;
            }
        }
        clear(u, "/mnt");
        clear(u, "/");
        u.unmount().unwrap();
        u.detach_memory_disk().unwrap();
    });
    found.take().map_or(Ok(()), Err)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn both_file_systems_answer_the_same(steps in prop::collection::vec(step(), 1..60)) {
        prop_assert_eq!(compare(&steps), Ok(()));
    }
}

#[test]
fn what_is_about_two_file_systems_is_refused() {
    let (name, config) = kernels().pop().map(|(_, name, config)| (name, config)).unwrap();
    run(name, Schedule::Timed, config, |u: &U| {
        u.attach_memory_disk(2 << 20).unwrap();
        u.make_volume(VolumeFormat::of_blocks(1024)).unwrap();
        u.close(u.open("/mnt/f", MAKE).unwrap()).unwrap();
        u.close(u.open("/f", MAKE).unwrap()).unwrap();
        assert_eq!(u.rename("/mnt/f", "/g"), Err(Errno::CrossDevice));
        assert_eq!(u.link("/f", "/mnt/g"), Err(Errno::CrossDevice));
        assert_eq!(u.rename("/f", "/dev/md1"), Err(Errno::CrossDevice));
        // However the way to a mount point is written, it leads there.
        for name in ["mnt/f", "//mnt/f", "/./mnt//f", "././mnt/./f"] {
            assert_eq!(u.link(name, "/g"), Err(Errno::CrossDevice), "{name}");
            assert!(u.stat(name).is_ok(), "{name}");
        }
        assert_eq!(u.mkdir("mnt"), Err(Errno::Exists));
        // A name that only begins like a mount point is the root's.
        u.close(u.open("/mntx", MAKE).unwrap()).unwrap();
        assert_eq!(u.list("/"), Ok(vec![("f".into(), false), ("mntx".into(), false)]));
        assert_eq!(u.list("/dev"), Ok(vec![("md0".into(), false), ("null".into(), false)]));
        assert_eq!(u.open("/dev/md1", RW), Err(Errno::NoFile));
        for name in ["/mnt/f", "f", "mntx"] {
            u.unlink(name).unwrap();
        }
        u.unmount().unwrap();
        u.detach_memory_disk().unwrap();
    });
}

/// `sendfile` from both: the same bytes, whatever way is asked for; of a volume's file they are copied.
#[test]
fn a_part_of_any_file_is_sent() {
    for (what, name, config) in kernels() {
        println!("{what}");
        run(name, Schedule::Timed, config, |u: &U| {
            u.attach_memory_disk(2 << 20).unwrap();
            u.make_volume(VolumeFormat::of_blocks(2048)).unwrap();
            let buffer = u.map(65536, Prot::RW, Inherit::Copy).unwrap();
            let bytes: Vec<u8> = (0..30_000).map(|i| (i / 7) as u8).collect();
            for file in ["/mnt/f", "/f"] {
                let fd = u.open(file, MAKE).unwrap();
                u.store(buffer, &bytes);
                assert_eq!(u.write(fd, buffer, bytes.len()), Ok(bytes.len()));
                // A hole behind it.
                u.truncate(fd, 33_000).unwrap();
                let whole = [&bytes[..], &[0; 3000]].concat();
                for mode in [SendMode::Copy, SendMode::Loan, SendMode::Auto] {
                    let (a, b) = u.socket_pair().unwrap();
                    u.set_nonblocking(a, true).unwrap();
                    let mut got = Vec::new();
                    let mut from = 1000;
                    while from < 33_000 {
                        let sent = u.send_file(a, fd, from, usize::MAX >> 1, mode).unwrap();
                        from += sent as u64;
                        let mut left = sent;
                        while left > 0 {
                            let len = u.read(b, buffer, left).unwrap();
                            let mut part = vec![0; len];
                            u.load(buffer, &mut part);
                            got.extend(part);
                            left -= len;
                        }
                    }
                    assert!(got == whole[1000..], "{file} {mode:?}");
                    u.close(a).unwrap();
                    u.close(b).unwrap();
                }
                u.close(fd).unwrap();
                u.unlink(file).unwrap();
            }
            u.unmount().unwrap();
            u.detach_memory_disk().unwrap();
        });
    }
}
