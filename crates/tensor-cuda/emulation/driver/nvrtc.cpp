// A stand-in for NVRTC: the host's C++ compiler builds a kernel file for the emulation, and the object is its machine code.
//
// Objects are kept in the folder FAKE_OBJECTS, named by a digest of all that they are made from but the compiler, which is CXX or
// g++. EMULATION is the folder of the emulation's headers when this is built. What else the environment says: FAKE_NVRTC (13000),
// FAKE_CAPABILITY (90): the options must ask for that, or for what a newer GPU translates.
#include <fstream>
#include <functional>
#include <iterator>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <unistd.h>
#include <vector>

enum Result { SUCCESS, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6 };

// As in src/driver/emulated/compiler.rs, for the same bits; without what finds races.
#define FLAGS " -std=c++17 -O2 -ffp-contract=off -fno-strict-aliasing -fPIC -shared -U_FORTIFY_SOURCE -DTOWERS_EMULATION"

struct Program {
    std::string source, name, log, image;
    std::vector<std::pair<std::string, std::string>> headers;
    bool ptx;
};

static long setting(const char* name, long otherwise) {
    const char* value = getenv(name);
    return value ? atol(value) : otherwise;
}

static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

static void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// The names of a file's kernels: what stands behind each KERNEL when everything else is expanded.
static std::vector<std::string> kernels_in(const std::string& text) {
    std::vector<std::string> names;
    const std::string mark = "towers_kernel_here";
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
        at = text.find_first_not_of(" \n", at + mark.size());
        names.push_back(text.substr(at, text.find_first_of(" (", at) - at));
    }
    return names;
}

static bool build(Program& program, const std::string& act, const std::string& object) {
    static int number;
    std::string folder = object + "-" + std::to_string(getpid()) + "-" + std::to_string(__sync_add_and_fetch(&number, 1));
    if (system(("mkdir -p '" + folder + "'").c_str())) return false;
    write(folder + "/" + program.name, program.source);
    for (const auto& [name, text] : program.headers) write(folder + "/" + name, text);
    const char* set = getenv("CXX");
    std::string cxx = "cd '" + folder + "' && " + (set && *set ? set : "g++") + FLAGS " -I'" EMULATION "' -DTOWERS_ACT=" + act;
    std::string begin = "#include \"shim.h\"\n", middle = "namespace {\n#include \"" + program.name + "\"\n}\n";
    write(folder + "/marked.cpp", begin + "#undef KERNEL\n#define KERNEL towers_kernel_here\n" + middle);
    bool done = !system((cxx + " -E -P marked.cpp -o marked.txt 2> log").c_str());
    std::string table, names;
    for (const std::string& name : kernels_in(read(folder + "/marked.txt"))) {
        table += "TOWERS_KERNEL(" + name + ")\n";
        names += "\"" + name + "\", ";
    }
    std::string end = "#include \"launch.h\"\nTOWERS_KERNELS(\n" + table + ")\n";
    end += "extern \"C\" { extern const char* const towers_names[]; const char* const towers_names[] = {" + names + "0}; }\n";
    write(folder + "/unit.cpp", begin + middle + end);
    done = done && !system((cxx + " unit.cpp -o unit.so 2>> log").c_str());
    done = done && !rename((folder + "/unit.so").c_str(), object.c_str());
    program.log = read(folder + "/log");
    return !system(("rm -r '" + folder + "'").c_str()) && done;
}

extern "C" {

Result nvrtcVersion(int* major, int* minor) {
    long version = setting("FAKE_NVRTC", 13000);
    *major = static_cast<int>(version / 1000), *minor = static_cast<int>(version % 1000 / 10);
    return SUCCESS;
}

Result nvrtcGetNumSupportedArchs(int* count) { return *count = 2, SUCCESS; }
Result nvrtcGetSupportedArchs(int* archs) { return archs[0] = 80, archs[1] = 90, SUCCESS; }
const char* nvrtcGetErrorString(Result) { return "what the compiler says"; }

Result nvrtcCreateProgram(Program** program, const char* source, const char* name, int headers, const char* const* texts,
                          const char* const* names) {
    if (!source || !*source || !name) return INVALID_INPUT;
    *program = new Program{source, name, "", "", {}, false};
    for (int k = 0; k < headers; ++k) (*program)->headers.emplace_back(names[k], texts[k]);
    return SUCCESS;
}

Result nvrtcDestroyProgram(Program** program) {
    if (!*program) return INVALID_PROGRAM;
    delete *program;
    *program = nullptr;
    return SUCCESS;
}

Result nvrtcCompileProgram(Program* program, int count, const char* const* options) {
    std::string target, act;
    for (int k = 0; k < count; ++k) {
        std::string option = options[k], value = option.substr(option.find('=') + 1);
        if (!option.find("--gpu-architecture=")) target = value;
        else if (!option.find("--define-macro=TOWERS_ACT=")) act = value.substr(value.find('=') + 1);
        else if (option != "--std=c++17" && option != "--generate-line-info") return INVALID_OPTION;
    }
    program->ptx = setting("FAKE_CAPABILITY", 90) > 90;
    if (target != (program->ptx ? "compute_90" : "sm_90")) return INVALID_OPTION;
    std::string all = program->name + act + program->source;
    for (const auto& [name, text] : program->headers) all += text;
    for (const char* name : {"shim.h", "copies.h", "half.h", "warp.h", "machine.h", "races.h", "launch.h"}) all += read(std::string(EMULATION "/") + name);
    std::string object = getenv("FAKE_OBJECTS");
    object += "/" + program->name + "-" + std::to_string(std::hash<std::string>()(all)) + ".so";
    if (access(object.c_str(), R_OK) && !build(*program, act, object)) return COMPILATION;
    program->image = program->ptx ? "// " + object : read(object);
    return SUCCESS;
}

Result nvrtcGetProgramLogSize(Program* program, size_t* bytes) { return *bytes = program->log.size() + 1, SUCCESS; }
Result nvrtcGetProgramLog(Program* program, char* log) { return strcpy(log, program->log.c_str()), SUCCESS; }
Result nvrtcGetCUBINSize(Program* program, size_t* bytes) { return *bytes = program->ptx ? 0 : program->image.size(), SUCCESS; }
Result nvrtcGetCUBIN(Program* program, char* image) {
    return memcpy(image, program->image.data(), program->image.size()), SUCCESS;
}
Result nvrtcGetPTXSize(Program* program, size_t* bytes) { return *bytes = program->image.size() + 1, SUCCESS; }
Result nvrtcGetPTX(Program* program, char* image) { return strcpy(image, program->image.c_str()), SUCCESS; }

} // extern "C"
