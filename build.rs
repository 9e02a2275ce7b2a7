//! Compiles `proto/` without protoc: protox parses, tonic-prost-build generates.

use prost::Message as _;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let descriptors = protox::compile(["caproot/v1/capability_service.proto"], ["proto"])?;
    // Server reflection and the JSON that the command line prints both read this.
    std::fs::write(out.join("caproot.v1.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().include_file("caproot.rs").compile_fds(descriptors)?;
    Ok(())
}
