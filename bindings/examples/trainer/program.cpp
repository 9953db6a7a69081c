#include "trainer/program.h"

#include <c10/util/Exception.h>

#include <exception>
#include <iostream>

#include "trainer/bad_input.h"

namespace trainer {

int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& body) {
  const auto complain = [&app](const std::string& message) {
    std::cerr << app.get_name() << ": " << message << std::endl;
  };
  try {
    app.parse(argc, argv);
    body();
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const BadInput& error) {
    complain(error.what());
    return 2;
  } catch (const c10::Error& error) {
    complain(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    complain("out of memory: choose a smaller configuration");
  } catch (const std::exception& error) {
    complain(error.what());
  }
  return 1;
}

}  // namespace trainer
