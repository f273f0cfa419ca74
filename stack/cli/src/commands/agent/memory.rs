//! Buffers and memory regions.
//!
//! In: lengths, bytes, patterns. Out: memory between guards, registered as the client asks. Every buffer is held by a region
//! of the agent's own, without rights for anybody, through which the agent itself reads and writes it.
//!
//! The pattern: byte p is byte p % 8 (least significant first) of the 64-bit word `mix(seed + (p/8 + 1) * 0x9e3779b97f4a7c15)`,
//! mix being the finalizer of splitmix64.
#![allow(unsafe_code, reason = "one piece of memory is registered more than once, with rights of the client's choice")]

use std::sync::Arc;

use xroce::{Access, Buffer, Mr, Pd};

use super::objects::{Object, Objects};
use super::protocol::{Args, Done, Fault, Pairs, errno};

/// Bytes on both sides of a buffer that nobody may touch.
const GUARD: usize = 4096;
/// Bytes that one request reads or writes.
const PIECE_MAX: u64 = 65536;
/// Bytes of a buffer.
const LEN_MAX: u64 = 1 << 30;

/// Memory between two guards.
#[derive(Debug)]
pub struct Block {
    /// Holds the memory; the client's regions lie in it.
    whole: Mr,
    /// Where the data begins, bytes into `whole`.
    at: usize,
    len: usize,
}

/// A region of the client's, and the memory behind it, which stays until the region is gone.
#[derive(Debug)]
pub struct Region {
    // Dropped before the memory.
    _mr: Mr,
    _memory: Arc<Block>,
}

fn guard_byte(offset: usize) -> u8 {
    0xa5 ^ offset as u8
}

/// Byte `p` of the pattern of `seed`.
fn pattern(seed: u64, p: u64) -> u8 {
    let mut z = seed.wrapping_add((p / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()[(p % 8) as usize]
}

impl Block {
    /// `len` zero bytes that begin `shift` bytes behind a page boundary.
    fn new(pd: &Pd, len: usize, shift: usize) -> Result<Block, Fault> {
        let at = GUARD + shift;
        let whole = pd
            .reg_mr(Buffer::zeroed(at + len + GUARD), Access::LOCAL_WRITE)
            .map_err(|error| Fault::new(errno::ENOMEM, "buf_alloc", error))?;
        let block = Block { whole, at, len };
        for (from, bytes) in block.guards() {
            let guard: Vec<u8> = (from..from + bytes).map(guard_byte).collect();
            block.whole.write_at(from, &guard).expect("the guards lie in the memory");
        }
        Ok(block)
    }

    /// Where the guards are, and how long.
    fn guards(&self) -> [(usize, usize); 2] {
        [(0, self.at), (self.at + self.len, GUARD)]
    }

    /// Address of the first byte of data.
    fn addr(&self) -> u64 {
        self.whole.as_mut_ptr() as u64 + self.at as u64
    }

    /// Whether these addresses lie in the data: offset and length.
    fn find(&self, addr: u64, len: u64) -> Option<(usize, usize)> {
        let offset = addr.checked_sub(self.addr())?;
        let fits = offset <= self.len as u64 && len <= self.len as u64 - offset;
        fits.then_some((offset as usize, len as usize))
    }

    fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        self.whole.to_vec(self.at + offset..self.at + offset + len).expect("the caller stays in the data")
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.whole.write_at(self.at + offset, bytes).expect("the caller stays in the data");
    }

    /// Where a guard was written to, counted from the first byte of data, and what stands there.
    fn broken_guard(&self) -> Option<(i64, u8)> {
        for (from, len) in self.guards() {
            let guard = self.whole.to_vec(from..from + len).expect("the guards lie in the memory");
            if let Some(i) = guard.iter().zip(from..).position(|(byte, at)| *byte != guard_byte(at)) {
                return Some(((from + i) as i64 - self.at as i64, guard[i]));
            }
        }
        None
    }
}

/// A piece of a buffer: `buf= off= len=` (absent: the rest).
struct Piece<'a> {
    block: &'a Block,
    offset: usize,
    len: usize,
}

fn piece<'a>(objects: &'a Objects, args: &Args<'_>) -> Result<Piece<'a>, Fault> {
    let block = objects.buffer(args, "buf")?;
    let (offset, len) = extent(block, args)?;
    Ok(Piece { block, offset, len })
}

fn extent(block: &Block, args: &Args<'_>) -> Result<(usize, usize), Fault> {
    let offset: u64 = args.number_or("off", 0)?;
    let rest = (block.len as u64).checked_sub(offset);
    let len: u64 = args.number_or("len", rest.unwrap_or(0))?;
    match rest {
        Some(rest) if len <= rest => Ok((offset as usize, len as usize)),
        _ => {
            let text = format!("{offset}+{len} is past the buffer's {} bytes", block.len);
            Err(Fault::new(errno::EINVAL, "off", text))
        }
    }
}

/// `buf_alloc len= shift= seed=`
pub fn alloc(objects: &mut Objects, pd: &Pd, args: &Args<'_>) -> Done {
    let (len, shift): (u64, usize) = (args.need("len")?, args.number_or("shift", 0)?);
    if len > LEN_MAX || shift >= GUARD {
        let text = format!("len is at most {LEN_MAX}, shift at most {}", GUARD - 1);
        return Err(Fault::new(errno::EINVAL, "buf_alloc", text));
    }
    let block = Block::new(pd, len as usize, shift)?;
    if let Some(seed) = args.number("seed")? {
        fill_with(&Piece { block: &block, offset: 0, len: block.len }, seed, 0);
    }
    let addr = block.addr();
    let handle = objects.add(Object::Buffer(Arc::new(block)));
    Ok(Pairs::none().with("buf", handle).with("addr", format_args!("{addr:#x}")))
}

fn fill_with(piece: &Piece<'_>, seed: u64, at: u64) {
    let bytes: Vec<u8> = (0..piece.len as u64).map(|i| pattern(seed, at + i)).collect();
    piece.block.write(piece.offset, &bytes);
}

/// `seed=`, and `at=`: where in the pattern the piece begins (absent: its offset in the buffer).
fn pattern_args(args: &Args<'_>, piece: &Piece<'_>) -> Result<(u64, u64), Fault> {
    Ok((args.need("seed")?, args.number_or("at", piece.offset as u64)?))
}

/// `buf_fill buf= off= len= seed= at=`
pub fn fill(objects: &Objects, args: &Args<'_>) -> Done {
    let piece = piece(objects, args)?;
    let (seed, at) = pattern_args(args, &piece)?;
    fill_with(&piece, seed, at);
    Ok(Pairs::none())
}

/// `buf_verify buf= off= len= seed= at=`
pub fn verify(objects: &Objects, args: &Args<'_>) -> Done {
    let piece = piece(objects, args)?;
    let (seed, at) = pattern_args(args, &piece)?;
    let bytes = piece.block.read(piece.offset, piece.len);
    let wanted = |i: usize| pattern(seed, at + i as u64);
    let bad = (0..bytes.len()).filter(|&i| bytes[i] != wanted(i)).count();
    let Some(first) = (0..bytes.len()).find(|&i| bytes[i] != wanted(i)) else {
        return Ok(Pairs::none().with("match", 1));
    };
    let reply = Pairs::none().with("match", 0).with("bad", bad).with("first", first);
    let byte = |value: u8| format!("{value:#04x}");
    Ok(reply.with("got", byte(bytes[first])).with("want", byte(wanted(first))))
}

/// `buf_read buf= off= len=`
pub fn read(objects: &Objects, args: &Args<'_>) -> Done {
    let piece = piece(objects, args)?;
    if piece.len as u64 > PIECE_MAX {
        let text = format!("at most {PIECE_MAX} bytes; larger pieces are checked by seed or crc");
        return Err(Fault::new(errno::EINVAL, "len", text));
    }
    let digits: String = piece.block.read(piece.offset, piece.len).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Pairs::none().with("hex", digits))
}

/// `buf_write buf= off= len= hex=`
pub fn write(objects: &Objects, args: &Args<'_>) -> Done {
    let digits = args.text("hex").ok_or_else(|| Fault::new(errno::EINVAL, "hex", "missing"))?;
    let bytes = unhex(digits).ok_or_else(|| Fault::new(errno::EINVAL, "hex", "not pairs of hexadecimal digits"))?;
    let piece = piece(objects, args)?;
    if bytes.len() > piece.len {
        return Err(Fault::new(errno::EINVAL, "hex", format!("{} bytes for a piece of {}", bytes.len(), piece.len)));
    }
    piece.block.write(piece.offset, &bytes);
    Ok(Pairs::none())
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = digits.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// `buf_crc buf= off= len=`: CRC-32 as zlib, Ethernet and PNG have it.
pub fn crc(objects: &Objects, args: &Args<'_>) -> Done {
    let piece = piece(objects, args)?;
    let crc = crc32fast::hash(&piece.block.read(piece.offset, piece.len));
    Ok(Pairs::none().with("crc", format_args!("{crc:#010x}")))
}

/// `buf_guard buf=`
pub fn guard(objects: &Objects, args: &Args<'_>) -> Done {
    Ok(match objects.buffer(args, "buf")?.broken_guard() {
        None => Pairs::none().with("guard", "ok"),
        Some((at, got)) => Pairs::none().with("guard", "broken").with("at", at).with("got", format_args!("{got:#04x}")),
    })
}

/// `mr_reg pd= buf= off= len= access= iova= invalidate=`
pub fn register(objects: &mut Objects, args: &Args<'_>) -> Done {
    let pd = objects.pd(args, "pd")?;
    let block = Arc::clone(objects.buffer(args, "buf")?);
    let (offset, len) = extent(&block, args)?;
    let mut access = Access::from_bits_retain(args.number_or("access", Access::LOCAL_WRITE.bits())?);
    access.set(Access::REMOTE_INVALIDATE, args.number_or("invalidate", 0u8)? != 0);
    let start = block.addr() + offset as u64;
    let iova: u64 = args.number_or("iova", start)?;
    // SAFETY: the bytes lie in `block`, which `Region` keeps for longer than the registration. They are initialised and
    // writable, and nobody makes a reference to them: `Block` copies them in and out through a region of its own.
    let mr = unsafe { pd.reg_mr_raw(start as *mut u8, len, Some(iova), access) };
    let mr = mr.map_err(|error| Fault::new(errno::EINVAL, "ibv_reg_mr_iova", error.source))?;
    let (lkey, rkey, va) = (mr.lkey().0, mr.rkey().0, mr.addr());
    let handle = objects.add(Object::Region(Region { _mr: mr, _memory: block }));
    let hex = |value: u64| format!("{value:#x}");
    let reply = Pairs::none().with("mr", handle).with("lkey", hex(lkey.into())).with("rkey", hex(rkey.into()));
    Ok(reply.with("va", hex(va)).with("len", len))
}

/// Bytes that are to be posted inline: they must lie in one of the client's buffers.
pub fn inline_bytes(objects: &Objects, addr: u64, len: u32) -> Result<Vec<u8>, Fault> {
    let blocks = objects.iter().filter_map(|object| match object {
        Object::Buffer(block) => Some(block),
        _ => None,
    });
    for block in blocks {
        if let Some((offset, len)) = block.find(addr, len.into()) {
            return Ok(block.read(offset, len));
        }
    }
    match len {
        0 => Ok(Vec::new()),
        _ => Err(Fault::new(errno::EFAULT, "sge", "inline data outside of any buffer")),
    }
}
