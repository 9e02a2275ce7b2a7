use crate::harness::{Daemon, read_request, selected};
use caproot::proto::caproot::v1::ReadResourceRequest;

fn cpu(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
    let rest: Vec<u64> = text.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2)
        .map(|n| n.parse().unwrap()).collect();
    rest[0] + rest[1]
}

#[tokio::test]
async fn measure() {
    let Ok(address) = std::env::var("MEASURE_ADDRESS") else { return };
    let pid: u32 = std::env::var("MEASURE_PID").unwrap().parse().unwrap();
    let daemon = Daemon::connect_to(&address).await;
    let root = selected("r", std::env::var("MEASURE_ROOT").unwrap());
    daemon.list(std::slice::from_ref(&root)).await;
    for (file, count) in [("small", 6000), ("large", 3000), ("small", 6000), ("large", 3000)] {
        let request = ReadResourceRequest { max_bytes: 1 << 20,
            ..read_request(&root, "skill://r/a", &format!("skill://r/a/{file}")) };
        for _ in 0..200 { daemon.read(request.clone()).await.unwrap(); }
        let (start, before) = (std::time::Instant::now(), cpu(pid));
        for _ in 0..count { daemon.read(request.clone()).await.unwrap(); }
        println!("{file}: {:?} per read, {} us of processor time of the daemon", start.elapsed() / count,
            (cpu(pid) - before) * 10_000 / u64::from(count));
    }
}
