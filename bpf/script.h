/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Script frames: what the BPF walk must know about a language runtime of a process, and the two
 * words by which the walk records one frame of it. Shared by the BPF programs, the collector, the
 * reader and the symbolizer. Compiles for BPF and for the host; includes nothing but integer types.
 *
 * The facts travel in one struct, which each process completes:
 *   symbolizer  fills struct script_runtime from the ELF file; addresses are file offsets (below)
 *   collector   adds the mapping's bias to every address and asks the reader
 *   reader      finds what only the process knows (CPython: tss_at, tls_at; HotSpot: nearly all),
 *               compares it with what it sees live, and answers with the completed struct
 *   collector   puts the struct into the BPF map `runtimes`, key tgid
 *
 * Addresses in the symbolizer's struct count as if the whole file were mapped with the displacement
 * of its code: address = vaddr - p_vaddr + p_offset of the executable segment that holds the
 * interpreter. So the collector adds the bias of the code's mapping (struct prof_mapping) to data
 * addresses, too. 0 stays 0: unknown. */
#ifndef PROFD_BPF_SCRIPT_H
#define PROFD_BPF_SCRIPT_H

#ifdef __bpf__
#include "bpf/bpf_types.h"
#else
#include <stdint.h>
#endif

/* Runtimes, at most 15: four bits of a frame word. */
enum script_kind {
	SCRIPT_NONE = 0,
	SCRIPT_CPYTHON = 1,
	SCRIPT_HOTSPOT = 2,
	SCRIPT_V8 = 3,
	SCRIPT_KIND_MAX,
};

/* How the Python frames of a thread hang together, and what separates the entries into the
 * interpreter's loop (one entry is one C frame of it). */
enum script_python_chain {
	/* 3.8-3.9: one frame object for each entry; nothing in the C frame names it. */
	SCRIPT_PYTHON_OBJECTS = 1,
	/* 3.10: the same, and a CFrame in the C frame of each entry. */
	SCRIPT_PYTHON_OBJECTS_CFRAME = 2,
	/* 3.11: an entry's last frame has is_entry set; a _PyCFrame lies in the entry's C frame. */
	SCRIPT_PYTHON_IS_ENTRY = 3,
	/* 3.12: an entry ends at a frame with owner >= 3, which lies in the entry's C frame. The
	 * thread names its innermost frame through a _PyCFrame. */
	SCRIPT_PYTHON_SHIM_CFRAME = 4,
	/* 3.13 and newer: the same, and the thread state names its innermost frame itself. */
	SCRIPT_PYTHON_SHIM = 5,
	SCRIPT_PYTHON_CHAIN_MAX,
};

enum script_python_flag {
	SCRIPT_PYTHON_LASTI_UNITS = 1, /* 3.10: instr is an index of code units (i32) */
	SCRIPT_PYTHON_LASTI_BYTES = 2, /* 3.8-3.9: instr is an index of bytes (i32) */
	SCRIPT_PYTHON_FREE_THREADED = 4,
};

/* Values of flag bits 0 and 1 are clear from 3.11 on: instr is then the address of an instruction
 * of the code object's own bytecode, which begins at code_bytecode in it. */

/* Offsets in bytes. "In a frame" is _PyInterpreterFrame (3.11+) or PyFrameObject, "in a code
 * object" PyCodeObject. What BPF reads comes first. */
struct script_python {
	uint8_t chain; /* enum script_python_chain */
	uint8_t flags; /* enum script_python_flag */
	uint16_t version;	/* major << 8 | minor: 0x030b is 3.11 */
	uint32_t reserved;
	/* The place of the thread's state, relative to its thread pointer; 0 = not this way. The
	 * word there is the address of its PyThreadState, NULL while it has none. Filled by the
	 * reader. */
	int32_t tls_at; /* variable _Py_tss_tstate (3.12+): NULL without the GIL */
	int32_t tss_at; /* value of the pthread key autoTSSkey: set with and without the GIL */
	uint16_t thread_frame;	  /* in PyThreadState: cframe (3.11, 3.12), current_frame (3.13+), frame
				   * (3.8-3.10) */
	uint16_t thread_cframe;	  /* 3.10 alone: cframe beside frame */
	uint16_t cframe_frame;	  /* in _PyCFrame: current_frame; unused elsewhere */
	uint16_t cframe_previous; /* in CFrame and _PyCFrame: previous */
	uint16_t frame_previous;  /* in a frame, all below SCRIPT_PYTHON_FRAME_BYTES - 8 */
	uint16_t frame_code;	  /* the low two bits of the word are a tag from 3.14 on */
	uint16_t frame_instr;
	uint16_t frame_entry;	  /* u8: f_state (3.10), is_entry (3.11) or owner (3.12+) */
	uint16_t code_bytecode;	  /* in a code object: the first instruction (3.11+) */
	uint16_t cookie_at;	  /* in a code object: first of the words that never change, see
				   * script_cookie() */
	uint16_t cookie_words;	  /* at most SCRIPT_COOKIE_WORDS */
	/* The rest is read by the reader only. */
	uint16_t code_filename, code_name, code_qualname; /* qualname 0 = there is none (3.8-3.10) */
	uint16_t code_firstlineno;			  /* i32 */
	uint16_t code_linetable;			  /* co_linetable or co_lnotab: a bytes object */
	uint16_t bytes_size, bytes_data;		  /* in a bytes object */
	uint16_t str_length, str_state, str_ascii_data, str_compact_data; /* in a str object */
	uint16_t thread_next, thread_interp, thread_id, thread_native_id; /* native_id 0 = there is none */
	uint16_t object_type; /* in every object: ob_type */
	uint16_t reserved_too;
	uint32_t runtime_interpreters;			/* in _PyRuntime: interpreters.head */
	uint32_t interp_threads, interp_next;		/* in PyInterpreterState */
	uint32_t runtime_bytes; /* of _PyRuntime, where the first interpreter's GIL lies; 0 = unknown */
	uint64_t runtime;   /* address of _PyRuntime */
	uint64_t tls_got;   /* address of the DTPMOD64 or TPOFF64 slot of _Py_tss_tstate, 0 = none */
	uint64_t code_type; /* address of PyCode_Type, 0 = not exported */
};

enum script_hotspot_flag {
	SCRIPT_HOTSPOT_OFFSETS = 1, /* blob_code and nmethod_deopt hold an i32 from the blob's begin,
				     * not an address; frame_complete is an i16, not an i32 */
	SCRIPT_HOTSPOT_POOL_FILE = 2, /* the source file is named by the constant pool, not the class */
};

#define SCRIPT_HOTSPOT_HEAPS 3u
#define SCRIPT_HOTSPOT_MADE_BYTES 64u /* read of a ConstMethod at once */
#define SCRIPT_HOTSPOT_NAMES 3u

/* Code that the virtual machine has generated, and where it says what lies where. */
struct script_hotspot_heap {
	uint64_t start; /* address of the first segment */
	uint64_t end;	/* of the reserved part; 0 = there is no such heap */
	uint64_t segmap; /* one byte a segment: 0 where a block begins, 0xff where none is, else how
			  * many segments to go back */
};

/* HotSpot, from its exported vmStructs (src/hotspot/share/runtime/vmStructs.cpp). Offsets in bytes.
 * The symbolizer fills the first three members, the reader the rest. What BPF reads comes first. */
struct script_hotspot {
	uint64_t structs, types; /* addresses of gHotSpotVMStructs and gHotSpotVMTypes */
	/* Addresses of what may be the texts "nmethod" and "native nmethod": a blob whose name is one
	 * of them is a compiled method. */
	uint64_t nmethod_names[SCRIPT_HOTSPOT_NAMES];
	struct script_hotspot_heap heaps[SCRIPT_HOTSPOT_HEAPS];
	uint64_t interpreter, interpreter_end;
	uint64_t entries, entries_end; /* of it: where methods begin */
	uint64_t call_return; /* in the call stub: where Java returns to C++ */
	uint16_t version;     /* 8 to 25, the JDK's */
	uint8_t flags;	      /* enum script_hotspot_flag */
	uint8_t segment_shift;
	uint16_t heap_header; /* bytes before a blob, in its block */
	uint16_t blob_name, blob_code, blob_frame_words, blob_frame_complete;
	uint16_t nmethod_compile_id, nmethod_orig_pc, nmethod_deopt; /* orig_pc: from sp, i32 */
	uint16_t frame_bcp;    /* bytes below the frame pointer of an interpreter's frame */
	uint16_t method_const; /* in Method: its ConstMethod */
	uint16_t const_bytes;  /* of a ConstMethod: the bytecodes follow it */
	uint16_t const_code_size; /* u16; the indices of name and signature follow it */
	/* The rest is read by the reader only. */
	uint16_t const_pool, const_name, const_signature; /* BPF reads const_pool, too, and pool_bytes,
							   * pool_class, class_name */
	uint16_t const_flags; /* u16 or u32 */
	uint16_t pool_bytes, pool_class, file_index; /* entries follow a ConstantPool */
	uint16_t class_name;
	uint16_t symbol_length, symbol_body; /* u16, bytes */
	uint16_t nmethod_bytes, nmethod_method, nmethod_level;
	uint16_t nmethod_pcs, nmethod_pcs_end; /* i32 offsets of the PcDescs */
	uint16_t nmethod_scopes; /* an address, or an i32 offset */
	uint16_t nmethod_metadata; /* i32 offset; 0 = behind the relocations, in blob_mutable */
	uint16_t nmethod_immutable; /* address of what pcs and scopes count from; 0 = of the blob */
	uint16_t nmethod_immutable_bytes; /* i32 */
	uint16_t blob_mutable, blob_relocation; /* an address, an i32 */
	uint16_t continuation_bytes; /* of a ContinuationEntry, below the frame of enterSpecial(); 0 =
				      * there are no virtual threads */
	uint16_t const_words; /* i32: of the ConstMethod with all that follows it */
	uint16_t symbol_refcount; /* in a Symbol, all whose numbers are in its first 8 bytes: u16 */
	uint16_t reserved[2];
};

/* Why the frames of a V8 cannot be read. */
enum script_v8_refusal {
	SCRIPT_V8_READABLE = 0,
	SCRIPT_V8_UNDESCRIBED = 1, /* its file exports no constants, or not those that are needed */
	SCRIPT_V8_COMPRESSED = 2,  /* its pointers have 4 bytes, as in Electron */
};

/* V8: offsets in bytes and instance types, from the constants that the file exports. A missing one
 * is 0. What BPF reads comes first. */
struct script_v8 {
	uint16_t map_type;	  /* in a Map: instance type, u16 */
	uint16_t function_shared; /* in a JSFunction: its SharedFunctionInfo */
	uint16_t shared_name;	  /* in a SharedFunctionInfo: the name, a String, or a ScopeInfo */
	uint16_t shared_script;	  /* there: a Script, or a DebugInfo */
	uint16_t type_shared, type_bytecode; /* of SharedFunctionInfo and BytecodeArray */
	uint16_t bytecode_data;	  /* in a BytecodeArray: the first bytecode */
	uint16_t frame_wasm;	  /* type of a WebAssembly function's frame, 0 = not known */
	uint16_t frame_regexp;	  /* of a regular expression's; 0 = such a frame has no type, but the
				   * string that is searched (V8 before 11) */
	uint16_t first_nonstring; /* types below it are those of strings */
	/* The rest is read by the reader only. */
	uint16_t type_interpreter_data, type_script, type_scope_info, type_code;
	uint16_t type_stream; /* of InstructionStream, which leads to its Code; 0: Code holds its
			       * instructions itself (V8 before 11) */
	uint16_t code_start;  /* in a Code: the address of its instructions, or these themselves */
	uint16_t code_bytes;  /* there: their number, i32 */
	uint16_t code_flags, code_kind_mask, code_kind_baseline; /* u32 */
	/* Indices in deoptimization data; 0 = not known: the literals, the inlining positions, the
	 * SharedFunctionInfo, its wrapper. */
	uint16_t deopt_literals, deopt_inlined, deopt_shared, deopt_shared_wrapper;
	uint16_t bytecode_wrapper;   /* in a BytecodeArray, 0 = there is none (V8 before 12) */
	uint16_t bytecode_positions; /* there: the table of source positions, a byte array */
	uint16_t script_source, script_name;
	uint16_t scope_locals, scope_first; /* in a ScopeInfo, in words behind its map: the number of
					     * variables, and the first of their names */
	uint16_t string_length, string_chars; /* u32; the characters of a sequential string */
	uint16_t cons_first, cons_second, sliced_parent, sliced_offset, thin_actual;
	uint16_t external_resource;
	uint16_t array_length, array_data; /* of a FixedArray or byte array */
	uint16_t bytecode_length; /* in a BytecodeArray: small integer */
	uint16_t bytecodes; /* that there are in this version, 0 = their lengths are not known */
	uint16_t refused;   /* enum script_v8_refusal; not 0 = there are no other facts */
	uint16_t operations; /* enum v8_operations of agent/runtimes/v8_translations.h */
	uint64_t bytecode_sizes; /* address of the lengths: three rows of u8, one for each width of
				  * operands (Bytecodes::kBytecodeSizes) */
};

/* Code of the interpreter's loop: what it executes belongs to the script. */
struct script_range {
	uint64_t start; /* address of the first byte */
	uint64_t end;	/* one past the last; 0 = this range is not used */
};

#define SCRIPT_RANGES_MAX 4u

/* The highest bit of @value, without a branch, as in what follows: the verifier would go both ways
 * of each. */
static inline uint64_t script_sign(uint64_t value)
{
	__asm__ volatile("" : "+r"(value));
	return value >> 63;
}

/* 1 if @value is 0. */
static inline uint64_t script_is_zero(uint64_t value)
{
	return script_sign(~value & (value - 1));
}

/* 1 if @address, of user space, lies in [@start, @end). */
static inline uint64_t script_is_within(uint64_t address, uint64_t start, uint64_t end)
{
	uint64_t past = address - start;

	return script_sign(~past & (past - (end - start)));
}

/* 1 if @pc lies in one of the SCRIPT_RANGES_MAX @ranges. */
static inline int script_is_in_ranges(const struct script_range *ranges, uint64_t pc)
{
	int ret = 0;

#ifdef __bpf__
#pragma clang loop unroll(full)
#endif
	for (uint32_t i = 0; i < SCRIPT_RANGES_MAX; i++)
		ret |= (int)script_is_within(pc, ranges[i].start, ranges[i].end);
	return ret;
}

/* Value of the map `runtimes`. An entry dies at exit and at exec; a fork copies it. */
struct script_runtime {
	uint32_t kind;	     /* enum script_kind; SCRIPT_NONE in an answer about a file: no runtime */
	uint32_t generation; /* of the entry, counted by the collector */
	struct script_range ranges[SCRIPT_RANGES_MAX];
	union {
		struct script_python python; /* of SCRIPT_CPYTHON */
		struct script_hotspot hotspot;
		struct script_v8 v8;
	};
};

/* ---- frame words ----------------------------------------------------------------------------- */

/* One script frame is two words of a stack, A then B (PROF_FRAME_SCRIPT and PROF_FRAME_SCRIPT_AT of
 * bpf/profiler.h). Both mean something in one process only.
 *   A: bits 59..56 enum script_kind, bits 55..0 the function: address of the code object
 *   B: bits 59..32 position in the function, bits 31..0 cookie
 * CPython's position is the index of the instruction in code units (2 bytes); the instruction is
 * the one being executed, or the call that a caller is in, so that no 1 is to be taken off.
 * HotSpot's words are described by enum script_hotspot_frame. */
#define SCRIPT_WORD_KIND_SHIFT	   60
#define SCRIPT_RUNTIME_SHIFT	   56
#define SCRIPT_POINTER_MASK	   ((1ull << 56) - 1)
#define SCRIPT_POSITION_SHIFT	   32
#define SCRIPT_POSITION_MASK	   ((1ull << 28) - 1)
/* The frame has not executed an instruction yet, or its position is outside of what was read. */
#define SCRIPT_POSITION_NONE	   SCRIPT_POSITION_MASK
#define SCRIPT_PYTHON_FRAME_BYTES  112u /* read of a frame at once */
#define SCRIPT_COOKIE_WORDS	   16u	/* read of a code object at once */

/* Bits 55..52 of HotSpot's word A: what bits 51..0 and the word B are. */
enum script_hotspot_frame {
	SCRIPT_HOTSPOT_INTERPRETED = 1, /* address of the Method; bytecode index, cookie of the method */
	SCRIPT_HOTSPOT_COMPILED = 2,	/* address of the nmethod; offset of the pc in it, compile id */
	SCRIPT_HOTSPOT_INNERMOST = 3,	/* the same, and the pc is not where a call returns to */
	SCRIPT_HOTSPOT_STUB = 4,	/* a pc in other code; 0, 0 */
};
#define SCRIPT_HOTSPOT_FRAME_SHIFT 52 /* V8's, too */
#define SCRIPT_HOTSPOT_POINTER_MASK ((1ull << 52) - 1)

/* Bits 55..52 of V8's word A: what bits 51..0 and the word B are. A SharedFunctionInfo stands for
 * its function, because it moves rarely. */
enum script_v8_frame {
	SCRIPT_V8_INTERPRETED = 1, /* address of the SharedFunctionInfo; offset of the bytecode, or
				    * SCRIPT_POSITION_NONE, and script_v8_cookie() */
	SCRIPT_V8_COMPILED = 2,	   /* a return address in generated code; word B below */
	SCRIPT_V8_INNERMOST = 3,   /* the same, and the pc is not where a call returns to */
	SCRIPT_V8_WASM = 4,	   /* a pc in code of WebAssembly; SCRIPT_V8_RETURN, or 0 */
	SCRIPT_V8_REGEXP = 5,	   /* a pc in code of a regular expression; the same */
	SCRIPT_V8_BUILTIN = 6,	   /* a function that calls a builtin without a frame: what may be the
				    * return address, 0 = unknown; word B below */
};
#define SCRIPT_V8_RETURN 1u /* the pc is a return address */
/* B of a function's generated code: bits 59..16 the address of the SharedFunctionInfo, in units of
 * 8 bytes, bits 15..0 the low ones of script_v8_cookie(). */
#define SCRIPT_V8_SHARED_SHIFT 16
#define SCRIPT_V8_SHARED_MASK  ((1ull << 44) - 1)
#define SCRIPT_V8_COOKIE_MASK  0xffffu

static inline uint32_t script_word_runtime(uint64_t a)
{
	return (uint32_t)(a >> SCRIPT_RUNTIME_SHIFT) & 15;
}

static inline uint64_t script_word_pointer(uint64_t a)
{
	return a & SCRIPT_POINTER_MASK;
}

static inline uint32_t script_word_position(uint64_t b)
{
	return (uint32_t)(b >> SCRIPT_POSITION_SHIFT) & (uint32_t)SCRIPT_POSITION_MASK;
}

static inline uint32_t script_word_cookie(uint64_t b)
{
	return (uint32_t)b;
}

/* The first 8 bytes of a Symbol without its count of references: a hash that it got at random when
 * it was made, its length, the begin of its text. */
static inline uint64_t script_hotspot_symbol(const struct script_hotspot *h, uint64_t word)
{
	return word & ~(0xffffull << (h->symbol_refcount & 6) * 8);
}

/* A number of the method that tells it from another one at the same address later: a mix of its
 * ConstMethod's address, of the four u16 there from const_code_size on, and of the Symbols of its
 * name and of its class. Classes that are loaded after others were unloaded get the very same
 * addresses. */
static inline uint32_t script_hotspot_cookie(uint64_t made, uint64_t facts, uint64_t name,
					     uint64_t class_name)
{
	uint64_t hash = (made ^ facts << 16) * 0x9fb21c651e98df25ull;

	hash = (hash ^ hash >> 32 ^ name) * 0x9fb21c651e98df25ull;
	hash = (hash ^ hash >> 32 ^ class_name) * 0x9fb21c651e98df25ull;
	return (uint32_t)(hash ^ hash >> 32);
}

/* A number of the code object that tells it from another one at the same address later: a mix of
 * the first @count of @words, SCRIPT_COOKIE_WORDS words from cookie_at on. They hold the pointers
 * to names and tables, sizes, the first line and, from 3.12 on, co_version: nothing that changes
 * while the object lives. A sum, because its products need not wait for each other. */
static inline __attribute__((always_inline)) uint32_t
script_cookie(const uint64_t words[SCRIPT_COOKIE_WORDS], uint32_t count)
{
	uint64_t hash = 0, factor = 0x9fb21c651e98df25ull;

#ifdef __bpf__
#pragma clang loop unroll(full)
#endif
	for (uint32_t i = 0; i < SCRIPT_COOKIE_WORDS; i++) {
		hash += (i < count ? words[i] : 0) * (factor >> 33 | 1); /* an immediate operand */
		factor *= 0x9fb21c651e98df25ull;
	}
	return (uint32_t)((hash ^ hash >> 32) * 0x6b743f5dull >> 32);
}

/* A number that tells a SharedFunctionInfo from another one at the same address later: a mix of its
 * name and its script. */
static inline uint32_t script_v8_cookie(uint64_t name, uint64_t script)
{
	return (uint32_t)((name ^ script << 1) * 0x9fb21c651e98df25ull >> 32);
}

#ifndef __bpf__
_Static_assert(sizeof(struct script_python) == 112, "layout");
_Static_assert(sizeof(struct script_hotspot) == 232, "layout");
_Static_assert(sizeof(struct script_runtime) == 304, "layout");
#endif

#endif
