//! `pageferry disk`: what goes into an image comes out; images that are none, cut off, of another version or damaged.

use crate::common::{pageferry, text};
use std::fs;
use std::path::Path;

fn done(dir: &Path, arguments: &[&str]) -> String {
    let output = pageferry(dir, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn refused(dir: &Path, arguments: &[&str]) -> String {
    let output = pageferry(dir, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stdout));
    text(&output.stderr)
}

/// A check that finds something.
fn found_wrong(dir: &Path, arguments: &[&str]) -> String {
    let output = pageferry(dir, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// A folder with a tree and an image of it.
fn made() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("a/b/c")).unwrap();
    fs::create_dir(tree.join("empty")).unwrap();
    fs::write(tree.join("a/small"), b"a few bytes").unwrap();
    fs::write(tree.join("a/b/nothing"), b"").unwrap();
    let large: Vec<u8> = (0..700_000u32).map(|i| (i / 3) as u8).collect();
    fs::write(tree.join("a/b/c/large"), large).unwrap();
    for i in 0..200 {
        fs::write(tree.join(format!("file-{i:03}")), vec![i as u8; i * 7]).unwrap();
    }
    let said = done(dir.path(), &["disk", "make", "tree", "-o", "img"]);
    assert!(said.contains("203 files and 4 directories"), "{said}");
    dir
}

fn same(a: &Path, b: &Path) {
    let names = |at: &Path| crate::common::entries(at);
    assert_eq!(names(a), names(b));
    for name in names(a) {
        let (a, b) = (a.join(&name), b.join(&name));
        if a.is_dir() {
            same(&a, &b);
        } else {
            assert_eq!(fs::read(&a).unwrap(), fs::read(&b).unwrap(), "{name}");
        }
    }
}

#[test]
fn what_goes_into_an_image_comes_out() {
    let dir = made();
    let at = dir.path();
    done(at, &["disk", "get", "img", "/", "-o", "out"]);
    same(&at.join("tree"), &at.join("out"));
    done(at, &["disk", "get", "img", "a/small", "-o", "small"]);
    assert_eq!(fs::read(at.join("small")).unwrap(), b"a few bytes");
    let listed = done(at, &["disk", "ls", "img", "a"]);
    let names: Vec<&str> = listed.lines().map(|line| line.split_whitespace().last().unwrap()).collect();
    assert_eq!(names, ["a/", "a/b/", "a/b/c/", "a/b/c/large", "a/b/nothing", "a/small"]);
    assert!(listed.contains("      700000  a/b/c/large"), "{listed}");
    assert!(done(at, &["disk", "check", "img"]).contains("whole; 203 files"));
    assert!(refused(at, &["disk", "get", "img", "a/none", "-o", "x"]).contains("no such file"));
    assert!(refused(at, &["disk", "ls", "img", "a/small/x"]).contains("not a directory"));
    assert!(refused(at, &["disk", "get", "img", "a", "-o", "out"]).contains("out"));
    assert!(refused(at, &["disk", "make", "tree", "-o", "tiny", "--size-mb", "1"]).contains("no space"));
    assert!(!at.join("tiny").exists());
}

#[test]
fn holes_and_second_names_are_kept() {
    use std::os::unix::fs::MetadataExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    fs::create_dir_all(at.join("tree/sub")).unwrap();
    fs::write(at.join("tree/one"), vec![7; 100_000]).unwrap();
    fs::hard_link(at.join("tree/one"), at.join("tree/sub/two")).unwrap();
    // A hole in front, and one behind.
    let sparse = fs::File::create(at.join("tree/sparse")).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, b"middle", 3_000_000).unwrap();
    sparse.set_len(6_000_000).unwrap();
    done(at, &["disk", "make", "tree", "-o", "img"]);
    let checked = done(at, &["disk", "check", "img"]);
    let count: u64 = checked.split(" fragments").next().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(checked.contains("whole") && count < 100, "{checked}");
    done(at, &["disk", "get", "img", "/", "-o", "out"]);
    same(&at.join("tree"), &at.join("out"));
    let ino = |name: &str| fs::metadata(at.join("out").join(name)).unwrap().ino();
    assert_eq!(ino("one"), ino("sub/two"));
    assert_ne!(ino("one"), ino("sparse"));
}

#[test]
fn a_check_says_what_is_so_and_nothing_that_a_terminal_obeys() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    fs::create_dir(at.join("tree")).unwrap();
    fs::write(at.join("tree/odd"), b"x").unwrap();
    done(at, &["disk", "make", "tree", "-o", "img"]);
    let mut image = fs::read(at.join("img")).unwrap();
    let entry = image.windows(4).position(|four| four == b"odd\0").expect("the name");
    image[entry..entry + 3].copy_from_slice(b"\x1b/d");
    fs::write(at.join("img"), image).unwrap();
    let said = found_wrong(at, &["disk", "check", "img"]);
    assert!(said.contains("is no name") && !said.contains('\x1b'), "{said}");
    // It was unmounted, whatever else is wrong with it; and what is counted is there now.
    let said = done(at, &["disk", "check", "img", "--repair"]);
    assert!(said.contains("whole again") && !said.contains("not unmounted"), "{said}");
    let counts = |said: &str| said.lines().last().unwrap().split(';').nth(1).unwrap().trim().to_owned();
    assert_eq!(counts(&said), counts(&done(at, &["disk", "check", "img"])));
}

#[test]
fn symbolic_links_are_kept_and_never_written_through() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    fs::create_dir_all(at.join("tree/sub")).unwrap();
    fs::write(at.join("tree/sub/file"), b"bytes").unwrap();
    let links = [("sub/file", "near"), ("../..", "sub/up"), ("/etc/passwd", "far"), ("gone", "dangling")];
    for (path, name) in links {
        symlink(path, at.join("tree").join(name)).unwrap();
    }
    let said = done(at, &["disk", "make", "tree", "-o", "img"]);
    assert!(said.contains("1 files and 1 directories, 4 symbolic links"), "{said}");
    let listed = done(at, &["disk", "ls", "img"]);
    assert!(listed.contains(" near -> sub/file\n") && listed.contains(" sub/up -> ../..\n"), "{listed}");
    assert!(done(at, &["disk", "check", "img"]).contains("whole; 1 files, 2 directories, 4 symbolic links"));
    done(at, &["disk", "get", "img", "/", "-o", "out"]);
    for (path, name) in links {
        assert_eq!(fs::read_link(at.join("out").join(name)).unwrap().to_str(), Some(path));
    }
    assert_eq!(fs::read(at.join("out/near")).unwrap(), b"bytes");
    let told = refused(at, &["disk", "get", "img", "near", "-o", "x"]);
    assert!(told.contains("`near` is a symbolic link to sub/file"), "{told}");
    // A link that has the name of a directory in the image: what is in that does not go where it leads.
    let mut image = fs::read(at.join("img")).unwrap();
    let mut store = pageferry_fs::Cached::new(pageferry_fs::MemoryDevice::from_bytes(image.clone()));
    let mut volume = pageferry_fs::Volume::mount(&mut store).unwrap();
    let root = volume.root();
    fs::create_dir(at.join("elsewhere")).unwrap();
    let elsewhere = at.join("elsewhere");
    volume.make_link(&mut store, root, b"suc", elsewhere.to_str().unwrap().as_bytes()).unwrap();
    volume.unmount(&mut store).unwrap();
    image.copy_from_slice(store.into_device().bytes());
    let entry = image.windows(4).position(|four| four == b"suc\0").expect("the name");
    image[entry + 2] = b'b';
    fs::write(at.join("twice"), image).unwrap();
    refused(at, &["disk", "get", "twice", "/", "-o", "twice-out"]);
    assert_eq!(crate::common::entries(&elsewhere), [""; 0]);
    assert!(found_wrong(at, &["disk", "check", "twice"]).contains("`sub` is there twice"));
}

#[test]
fn images_that_cannot_be_used_are_named_and_refused() {
    let dir = made();
    let at = dir.path();
    let sound = fs::read(at.join("img")).unwrap();
    let try_with = |bytes: &[u8], expected: &str| {
        fs::write(at.join("bad"), bytes).unwrap();
        for arguments in
            [&["disk", "check", "bad"][..], &["disk", "ls", "bad"], &["disk", "get", "bad", "a", "-o", "o"]]
        {
            let said = refused(at, arguments);
            assert!(said.contains("bad: ") && said.contains(expected), "{said}");
        }
    };
    try_with(b"", "ends after 0 whole sectors of 512 bytes");
    try_with(b"nothing of the kind, but long enough", "ends after 0 whole sectors of 512 bytes");
    try_with(&[7; 8192], "no superblock");
    try_with(&sound[..sound.len() / 3], "it ends after");
    let mut other = sound.clone();
    other[8] = 3;
    try_with(&other, "version 3, expected 2");
    let mut changed = sound;
    changed[17] ^= 4;
    try_with(&changed, "sum");
    assert!(refused(at, &["disk", "check", "missing"]).contains("missing"));
    let said = refused(at, &["disk", "make", "tree", "-o", "new", "--fragment-bytes", "4096"]);
    assert!(said.contains("fragments of 4096 bytes, expected a power of two, 512 to 2048"), "{said}");
    assert!(!said.contains("GiB"), "no disk was tried: {said}");
}

#[test]
fn damage_is_found_and_repaired_and_never_a_panic() {
    let dir = made();
    let at = dir.path();
    let sound = fs::read(at.join("img")).unwrap();
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut below = |end: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % end
    };
    let mut found = 0;
    for case in 0..40 {
        let mut bytes = sound.clone();
        for _ in 0..1 + below(30) {
            // Mostly among the inodes and the first directories.
            let end = if below(4) > 0 { 40_000 } else { bytes.len() as u64 };
            let place = 512 + below(end - 512) as usize;
            bytes[place] = below(256) as u8;
        }
        fs::write(at.join("bad"), &bytes).unwrap();
        let _ = fs::remove_dir_all(at.join("o"));
        for arguments in
            [&["disk", "ls", "bad"][..], &["disk", "get", "bad", "/", "-o", "o"], &["disk", "check", "bad"]]
        {
            let output = pageferry(at, arguments);
            let said = text(&output.stderr);
            assert!(
                matches!(output.status.code(), Some(0..=2)) && !said.contains("panicked"),
                "{case}: {said}"
            );
            found += usize::from(arguments[1] == "check" && output.status.code() == Some(1));
        }
        let repaired = pageferry(at, &["disk", "check", "bad", "--repair"]);
        assert_eq!(repaired.status.code(), Some(0), "{case}: {}", text(&repaired.stderr));
        assert!(done(at, &["disk", "check", "bad"]).contains("whole;"), "{case}");
    }
    assert!(found > 20, "{found}");
}
