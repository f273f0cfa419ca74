//! Compiles the BPF program with clang and writes its skeleton into `OUT_DIR`.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::PathBuf;

const SOURCE: &str = "src/bpf/roce.bpf.c";

fn main() {
    let out_dir = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH for build scripts");
    // Its debug information, which the program carries along, shall not tell where it was built.
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR for build scripts");
    let out = PathBuf::from(out_dir).join("roce.skel.rs");
    println!("cargo:rerun-if-changed={SOURCE}");
    let built = SkeletonBuilder::new()
        .source(SOURCE)
        // Debian keeps <asm/types.h> in a folder a machine type, where `-target bpf` does not look. The v3
        // instruction set (kernel 5.12) has the atomic add that returns the old value.
        .clang_args([
            format!("-I/usr/include/{arch}-linux-gnu"),
            format!("-ffile-prefix-map={here}=xdp-prog"),
            "-mcpu=v3".into(),
            "-Wall".into(),
            "-Werror".into(),
        ])
        .build_and_generate(&out);
    if let Err(error) = built {
        panic!(
            "{SOURCE} was not compiled: {error:#}\n\
             needed: clang, the kernel's user-space headers, libelf and zlib with their headers \
             (Debian: clang libelf-dev zlib1g-dev linux-libc-dev)"
        );
    }
}
