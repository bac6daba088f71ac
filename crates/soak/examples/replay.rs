fn main() {
    let s = std::fs::read_to_string(std::env::args().nth(1).unwrap()).unwrap();
    let p: pageferry_soak::Program = serde_json::from_str(s.split("\nstep").next().unwrap()).unwrap();
    println!("{:?}", p.run());
}
