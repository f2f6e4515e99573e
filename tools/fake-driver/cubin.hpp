// The parts of machine code that the fake reads: its chip, and the kernels with the bytes of their parameters.
#pragma once
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <map>
#include <string>

struct Cubin {
    unsigned chip = 0;  // 90 for sm_90
    std::map<std::string, uint64_t> kernels;

    // Whether a chip runs the code: of the same generation, and not older.
    bool runs_on(uint64_t capability) const { return chip / 10 == capability / 10 && chip % 10 <= capability % 10; }

    static bool is(const void* image) { return std::memcmp(image, ELFMAG, SELFMAG) == 0; }

    // False if it is not NVIDIA's machine code. Like the driver, it does not get the image's length.
    bool read(const void* image) {
        const auto* bytes = static_cast<const uint8_t*>(image);
        Elf64_Ehdr head;
        std::memcpy(&head, bytes, sizeof head);
        enum { MACHINE_CUDA = 190, WIDE_FLAGS = 8 };
        if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_machine != MACHINE_CUDA) return false;
        if (head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shstrndx >= head.e_shnum) return false;
        chip = head.e_ident[EI_ABIVERSION] >= WIDE_FLAGS ? head.e_flags >> 8 & 0xff : head.e_flags & 0xff;
        const auto section = [&](unsigned index) {
            Elf64_Shdr found;
            std::memcpy(&found, bytes + head.e_shoff + index * sizeof found, sizeof found);
            return found;
        };
        const Elf64_Shdr names = section(head.e_shstrndx);
        static const std::string PREFIX = ".nv.info.";
        for (unsigned index = 0; index < head.e_shnum; index++) {
            const Elf64_Shdr each = section(index);
            const std::string name = reinterpret_cast<const char*>(bytes + names.sh_offset + each.sh_name);
            if (name.compare(0, PREFIX.size(), PREFIX) == 0)
                kernels[name.substr(PREFIX.size())] = parameter_bytes(bytes + each.sh_offset, each.sh_size);
        }
        return true;
    }

  private:
    // Attributes of a kernel: how each is stored, which it is, then two bytes that are its value or the length of one.
    static uint64_t parameter_bytes(const uint8_t* attributes, uint64_t len) {
        enum { SIZED = 4, PARAMETER_SIZE = 0x19 };
        for (uint64_t at = 0; at + 4 <= len;) {
            uint16_t value;
            std::memcpy(&value, attributes + at + 2, 2);
            if (attributes[at] != SIZED && attributes[at + 1] == PARAMETER_SIZE) return value;
            at += 4 + (attributes[at] == SIZED ? value : 0);
        }
        return 0;
    }
};
