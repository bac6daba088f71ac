//! One tree of names out of several file systems: symbolic links and `..` lead from one to another, beside a plain
//! model of the whole tree. The volume below `/mnt` is the kernel's own, or a server's process.

use crate::common::*;
use crate::ispc::{served, try_served};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_vm::Inherit;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const MAKE: OpenFlags = RW.union(OpenFlags::CREATE);

// ------------------------------------------------------------------------------------------------------- the model

/// What is at a place of the tree.
enum Node {
    File {
        links: u16,
    },
    /// With its parent, and on which file system it is.
    Directory {
        names: BTreeMap<String, usize>,
        parent: usize,
    },
    Link(String),
}

/// A whole tree, by numbers; 0 is the root, 1 what is mounted below `/mnt`.
struct Tree {
    nodes: Vec<(Node, u8)>,
}

/// A directory, and a name in it.
type Place = (usize, String);

impl Tree {
    fn new() -> Tree {
        let directory = |on| (Node::Directory { names: BTreeMap::new(), parent: 0 }, on);
        Tree { nodes: vec![directory(0), directory(1)] }
    }

    fn names(&self, dir: usize) -> Option<&BTreeMap<String, usize>> {
        match &self.nodes[dir].0 {
            Node::Directory { names, .. } => Some(names),
            _ => None,
        }
    }

    fn names_mut(&mut self, dir: usize) -> &mut BTreeMap<String, usize> {
        match &mut self.nodes[dir].0 {
            Node::Directory { names, .. } => names,
            _ => panic!("{dir} is no directory"),
        }
    }

    fn on(&self, node: usize) -> u8 {
        self.nodes[node].1
    }

    /// What has a name in a directory.
    fn entry(&self, dir: usize, name: &str) -> Result<usize, Errno> {
        let Node::Directory { names, parent } = &self.nodes[dir].0 else { return Err(Errno::NotDirectory) };
        match name {
            "." => Ok(dir),
            ".." => Ok(*parent),
            "mnt" if dir == 0 => Ok(1),
            _ => names.get(name).copied().ok_or(Errno::NoFile),
        }
    }

    /// The directory of a path, and its last name: that is no link's if it is to be followed.
    fn walk(&self, path: &str, follow: bool) -> Result<Place, Errno> {
        let split =
            |path: &str| path.split('/').filter(|n| !n.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        let (mut dir, mut names, mut links) = (0, split(path), 0);
        names.reverse();
        let mut last = (0, ".".to_owned());
        while let Some(name) = names.pop() {
            let found = self.entry(dir, &name);
            if let Ok(node) = found
                && let Node::Link(target) = &self.nodes[node].0
                && (follow || !names.is_empty())
            {
                links += 1;
                if links > 32 {
                    return Err(Errno::Loop);
                }
                names.extend(split(target).into_iter().rev());
                if target.starts_with('/') {
                    dir = 0;
                }
                last = (dir, ".".to_owned());
                continue;
            }
            last = (dir, name);
            if !names.is_empty() {
                dir = found?;
            }
            if self.names(dir).is_none() {
                return Err(Errno::NotDirectory);
            }
        }
        // What is reached from another file system is that one's root, which has no other name there.
        match self.entry(last.0, &last.1) {
            Ok(root) if self.on(root) != self.on(last.0) => Ok((root, ".".to_owned())),
            _ => Ok(last),
        }
    }

    fn found(&self, path: &str, follow: bool) -> Result<usize, Errno> {
        let (dir, name) = self.walk(path, follow)?;
        self.entry(dir, &name)
    }

    fn absent(&self, (dir, name): &Place) -> Result<(), Errno> {
        let is_dots = name == "." || name == "..";
        if is_dots || self.entry(*dir, name).is_ok() { Err(Errno::Exists) } else { Ok(()) }
    }

    fn make(&mut self, (dir, name): Place, node: Node) {
        let on = self.on(dir);
        self.nodes.push((node, on));
        let number = self.nodes.len() - 1;
        self.names_mut(dir).insert(name, number);
    }

    fn drop_name(&mut self, (dir, name): &Place) {
        let node = self.names_mut(*dir).remove(name).expect("it was found");
        if let Node::File { links } = &mut self.nodes[node].0 {
            *links -= 1;
        }
    }

    /// A directory is another, or lies within it.
    fn is_within(&self, mut dir: usize, other: usize) -> bool {
        loop {
            match &self.nodes[dir].0 {
                _ if dir == other => return true,
                Node::Directory { parent, .. } if dir > 1 => dir = *parent,
                _ => return false,
            }
        }
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        let (from, to) = (self.walk(from, false)?, self.walk(to, false)?);
        if self.on(from.0) != self.on(to.0) {
            return Err(Errno::CrossDevice);
        }
        if [&from, &to].iter().any(|(_, name)| name == "." || name == "..") {
            return Err(Errno::Busy);
        }
        let node = self.entry(from.0, &from.1)?;
        let moves_directory = self.names(node).is_some();
        if moves_directory && self.is_within(to.0, node) {
            return Err(Errno::Invalid);
        }
        if let Ok(there) = self.entry(to.0, &to.1) {
            if there == node {
                return Ok(());
            }
            if self.names(there).is_some() && self.is_within(from.0, there) {
                return Err(Errno::NotEmpty);
            }
            match (moves_directory, self.names(there)) {
                (false, Some(_)) => return Err(Errno::IsDirectory),
                (true, None) => return Err(Errno::NotDirectory),
                (true, Some(names)) if !names.is_empty() => return Err(Errno::NotEmpty),
                _ => self.drop_name(&to),
            }
        }
        self.names_mut(from.0).remove(&from.1);
        self.names_mut(to.0).insert(to.1, node);
        if let Node::Directory { parent, .. } = &mut self.nodes[node].0 {
            *parent = to.0;
        }
        Ok(())
    }

    /// The answer of a call, in words.
    fn answer(&mut self, step: &Step) -> String {
        let answer = self.try_answer(step);
        answer.unwrap_or_else(|e| format!("{e:?}"))
    }

    fn try_answer(&mut self, step: &Step) -> Result<String, Errno> {
        match step {
            Step::Make(path) => {
                let place = self.walk(path, true)?;
                match self.entry(place.0, &place.1) {
                    Ok(node) if self.names(node).is_some() => return Err(Errno::IsDirectory),
                    Ok(_) => {}
                    Err(Errno::NoFile) => self.make(place, Node::File { links: 1 }),
                    Err(e) => return Err(e),
                }
            }
            Step::MakeNew(path) => {
                let place = self.walk(path, false)?;
                self.absent(&place)?;
                self.make(place, Node::File { links: 1 });
            }
            Step::Mkdir(path) => {
                let place = self.walk(path, false)?;
                self.absent(&place)?;
                let parent = place.0;
                self.make(place, Node::Directory { names: BTreeMap::new(), parent });
            }
            Step::Rmdir(path) => {
                let place = self.walk(path, false)?;
                match place.1.as_str() {
                    "." => return Err(Errno::Invalid),
                    ".." => return Err(Errno::NotEmpty),
                    _ => {}
                }
                let node = self.entry(place.0, &place.1)?;
                if !self.names(node).ok_or(Errno::NotDirectory)?.is_empty() {
                    return Err(Errno::NotEmpty);
                }
                self.drop_name(&place);
            }
            Step::Unlink(path) => {
                let place = self.walk(path, false)?;
                let node = self.entry(place.0, &place.1)?;
                if self.names(node).is_some() {
                    return Err(Errno::IsDirectory);
                }
                self.drop_name(&place);
            }
            Step::Rename(from, to) => self.rename(from, to)?,
            Step::Link(from, to) => {
                let node = self.found(from, true)?;
                let to = self.walk(to, false)?;
                if self.on(node) != self.on(to.0) {
                    return Err(Errno::CrossDevice);
                }
                self.absent(&to)?;
                let Node::File { links } = &mut self.nodes[node].0 else { return Err(Errno::IsDirectory) };
                *links += 1;
                self.names_mut(to.0).insert(to.1, node);
            }
            Step::Symlink(path, name) => {
                let place = self.walk(name, false)?;
                self.absent(&place)?;
                self.make(place, Node::Link(path.clone()));
            }
            Step::ReadLink(path) => match &self.nodes[self.found(path, false)?].0 {
                Node::Link(path) => return Ok(path.clone()),
                _ => return Err(Errno::Invalid),
            },
            Step::Stat(path, follow) => {
                let node = self.found(path, *follow)?;
                let (is_directory, is_link, links) = match &self.nodes[node].0 {
                    Node::File { links } => (false, false, *links),
                    Node::Link(_) => (false, true, 1),
                    Node::Directory { names, .. } => {
                        let below = names.values().filter(|node| self.names(**node).is_some()).count();
                        (true, false, 2 + below as u16)
                    }
                };
                return Ok(format!("{:?}", (is_directory, is_link, links)));
            }
            Step::List(path) => {
                let node = self.found(path, true)?;
                let names = self.names(node).ok_or(Errno::NotDirectory)?;
                let entry = |(name, node): (&String, &usize)| (name.clone(), self.names(*node).is_some());
                return Ok(format!("{:?}", names.iter().map(entry).collect::<Vec<_>>()));
            }
        }
        Ok(String::new())
    }
}

// ------------------------------------------------------------------------------------------------------- programs

/// A call about names.
#[derive(Clone, Debug)]
enum Step {
    Make(String),
    MakeNew(String),
    Mkdir(String),
    Rmdir(String),
    Unlink(String),
    Rename(String, String),
    Link(String, String),
    Symlink(String, String),
    ReadLink(String),
    Stat(String, bool),
    List(String),
}

/// Paths from anywhere to anywhere.
fn path() -> impl Strategy<Value = String> {
    let begin = prop::sample::select(vec!["", "/", "/mnt", "/mnt/", "mnt", "/mnt/..", "/../mnt", "/a"]);
    let name = prop::sample::select(vec!["a", "b", "d", ".", "..", "..", "mnt", "a", "d", ""]);
    (begin, prop::collection::vec(name, 1..5)).prop_map(|(begin, names)| {
        let path = names.join("/");
        if begin.is_empty() && path.is_empty() { ".".into() } else { format!("{begin}/{path}") }
    })
}

/// Where symbolic links lead: from where they are, or from the root.
fn target() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "d", "..", "mnt"]);
    (any::<bool>(), prop::collection::vec(name, 1..4))
        .prop_map(|(absolute, names)| format!("{}{}", if absolute { "/" } else { "" }, names.join("/")))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => path().prop_map(Step::Make),
        1 => path().prop_map(Step::MakeNew),
        4 => path().prop_map(Step::Mkdir),
        1 => path().prop_map(Step::Rmdir),
        1 => path().prop_map(Step::Unlink),
        3 => (path(), path()).prop_map(|(a, b)| Step::Rename(a, b)),
        2 => (path(), path()).prop_map(|(a, b)| Step::Link(a, b)),
        4 => (target(), path()).prop_map(|(a, b)| Step::Symlink(a, b)),
        1 => path().prop_map(Step::ReadLink),
        3 => (path(), any::<bool>()).prop_map(|(p, follow)| Step::Stat(p, follow)),
        2 => path().prop_map(Step::List),
    ]
}

/// Does a call; its answer in the model's words.
fn answer(u: &U, step: &Step) -> String {
    let closed = |opened: Result<Fd, Errno>| opened.map(|fd| u.close(fd).unwrap());
    let done = match step {
        Step::Make(path) => closed(u.open(path, MAKE)),
        Step::MakeNew(path) => closed(u.open(path, MAKE | OpenFlags::EXCLUSIVE)),
        Step::Mkdir(path) => u.mkdir(path),
        Step::Rmdir(path) => u.rmdir(path),
        Step::Unlink(path) => u.unlink(path),
        Step::Rename(from, to) => u.rename(from, to),
        Step::Link(from, to) => u.link(from, to),
        Step::Symlink(path, name) => u.symlink(path, name),
        Step::ReadLink(path) => return u.read_link(path).unwrap_or_else(|e| format!("{e:?}")),
        Step::Stat(path, follow) => {
            let stat = if *follow { u.stat(path) } else { u.stat_link(path) };
            let told = stat.map(|stat| format!("{:?}", (stat.is_directory, stat.is_link, stat.links)));
            return told.unwrap_or_else(|e| format!("{e:?}"));
        }
        Step::List(path) => {
            let told = u.list(path).map(|mut names| {
                names.sort();
                format!("{names:?}")
            });
            return told.unwrap_or_else(|e| format!("{e:?}"));
        }
    };
    done.map_or_else(|e| format!("{e:?}"), |()| String::new())
}

/// A program under a kernel that has a volume below `/mnt`: its own, or a server's.
fn mounted(is_served: bool, program: impl Fn(&U) + 'static) {
    let init = move |u: &U| {
        u.attach_memory_disk(2 << 20).unwrap();
        u.make_volume(VolumeFormat::of_blocks(1024)).unwrap();
        program(u);
        clear(u, "/mnt");
        clear(u, "/");
        u.unmount().unwrap();
        u.detach_memory_disk().unwrap();
    };
    if is_served {
        let (name, method) = served()[0];
        sound(&try_served(name, Schedule::Timed, method, Planted::NONE, init), name);
    } else {
        let (name, config) = kernels().pop().map(|(_, name, config)| (name, config)).unwrap();
        run(name, Schedule::Timed, config, init);
    }
}

fn compare(is_served: bool, steps: &[Step]) -> Result<(), String> {
    let steps = steps.to_vec();
    let found = Rc::new(RefCell::new(None));
    let told = found.clone();
    mounted(is_served, move |u: &U| {
        let mut tree = Tree::new();
        for (i, step) in steps.iter().enumerate() {
            let (ours, expected) = (answer(u, step), tree.answer(step));
            if ours != expected {
                *told.borrow_mut() = Some(format!("step {i}, {step:?}: `{ours}`, the model `{expected}`"));
                break;
            }
        }
    });
    found.take().map_or(Ok(()), Err)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn names_lead_where_they_lead_in_a_plain_tree(
        is_served in prop::bool::weighted(0.25), steps in prop::collection::vec(step(), 1..80),
    ) {
        prop_assert_eq!(compare(is_served, &steps), Ok(()));
    }
}

// ------------------------------------------------------------------------------------------------------- by hand

#[test]
fn links_and_dots_lead_from_one_file_system_to_the_other() {
    for is_served in [false, true] {
        mounted(is_served, |u| {
            let buffer = u.map(4096, Prot::RW, Inherit::Copy).unwrap();
            let put = |name: &str, byte: u8| {
                let fd = u.open(name, MAKE).unwrap();
                u.store(buffer, &[byte]);
                assert_eq!(u.write(fd, buffer, 1), Ok(1));
                u.close(fd).unwrap();
            };
            let get = |name: &str| -> Result<u8, Errno> {
                let fd = u.open(name, OpenFlags::READ)?;
                let mut byte = [0];
                assert_eq!(u.read(fd, buffer, 1), Ok(1));
                u.load(buffer, &mut byte);
                u.close(fd).unwrap();
                Ok(byte[0])
            };
            for dir in ["/dir", "/mnt/dir"] {
                u.mkdir(dir).unwrap();
            }
            put("/dir/file", 1);
            put("/mnt/dir/file", 2);
            // `..` from the root of the volume, however that is reached; and back, through the root's own directories.
            for name in ["/mnt/../dir/file", "/mnt/dir/../../dir/file", "/mnt/./..//dir/../dir/file"] {
                assert_eq!(get(name), Ok(1), "{name}");
            }
            for name in ["/dir/../mnt/dir/file", "/mnt/../mnt/dir/file", "/mnt/dir/../../mnt/../mnt/dir/file"]
            {
                assert_eq!(get(name), Ok(2), "{name}");
            }
            assert_eq!(u.list("/mnt/.."), u.list("/"));
            assert_eq!(u.list("/dir/../dev/../mnt"), u.list("/mnt"));
            // By links: from the root, from where they are, through one another.
            u.symlink("/mnt/dir", "/dir/over").unwrap();
            u.symlink("/dir", "/mnt/back").unwrap();
            u.symlink("../../dir/file", "/mnt/dir/up").unwrap();
            assert_eq!(get("/dir/over/file"), Ok(2));
            assert_eq!(get("/mnt/back/file"), Ok(1));
            assert_eq!(get("/mnt/dir/up"), Ok(1));
            assert_eq!(get("/mnt/back/over/../back/over/up"), Ok(1));
            assert_eq!(u.read_link("/mnt/back/over").as_deref(), Ok("/mnt/dir"));
            assert!(u.stat_link("/mnt/back/over").unwrap().is_link);
            assert!(u.stat("/mnt/back/over").unwrap().is_directory);
            // What is made where a link leads is made there.
            u.symlink("/mnt/dir/new", "/dir/made").unwrap();
            put("/dir/made", 3);
            assert_eq!(get("/mnt/dir/new"), Ok(3));
            // Two names of one file system, one of them by way of the other.
            u.rename("/dir/over/new", "/mnt/dir/newer").unwrap();
            u.link("/mnt/back/file", "/dir/same").unwrap();
            assert_eq!((get("/mnt/dir/newer"), get("/dir/same")), (Ok(3), Ok(1)));
            assert_eq!(u.rename("/dir/over/newer", "/dir/newer"), Err(Errno::CrossDevice));
            assert_eq!(u.link("/mnt/back/file", "/mnt/file"), Err(Errno::CrossDevice));
            assert_eq!(u.open("/dir/over/../../dir/over", RW | OpenFlags::NO_FOLLOW), Err(Errno::Loop));
            // What is mounted on is there, and is not made, renamed or removed.
            assert_eq!(u.mkdir("/dir/../mnt"), Err(Errno::Exists));
            assert_eq!(u.rename("/dir/../mnt", "/mnt/dir/x"), Err(Errno::Busy));
            assert_eq!(u.unlink("/dir/../mnt"), Err(Errno::IsDirectory));
        });
    }
}

/// As many links are followed as one file system follows, wherever they are.
#[test]
fn links_are_counted_over_all_file_systems() {
    for is_served in [false, true] {
        mounted(is_served, |u| {
            u.close(u.open("/mnt/l0", MAKE).unwrap()).unwrap();
            let name = |i: usize| if i.is_multiple_of(2) { format!("/mnt/l{i}") } else { format!("/l{i}") };
            for i in 1..=33 {
                u.symlink(&name(i - 1), &name(i)).unwrap();
            }
            assert!(u.stat(&name(32)).is_ok());
            assert_eq!(u.stat(&name(33)), Err(Errno::Loop));
            assert!(u.stat_link(&name(33)).is_ok());
            // In a circle through both; and within each.
            u.symlink("/mnt/round", "/round").unwrap();
            u.symlink("../round", "/mnt/round").unwrap();
            u.symlink("self", "/self").unwrap();
            for name in ["/round", "/mnt/round", "/mnt/round/x", "/self", "/self/x"] {
                assert_eq!(u.open(name, MAKE), Err(Errno::Loop), "{name}");
                assert_eq!(u.mkdir(&format!("{name}/x")), Err(Errno::Loop), "{name}");
            }
            // `..` counts nothing.
            let around = "/mnt/..".repeat(60);
            assert!(u.stat(&format!("{around}/mnt/l0")).is_ok());
        });
    }
}
