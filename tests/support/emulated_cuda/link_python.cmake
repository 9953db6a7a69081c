# spillway_link_python_torch(<folder with libtorch-VERSION> <folder `emulated`> <variable>): where fetch_python.sh has
# put a Python with this torch, its torch is linked into the folder, so that with PYTHONPATH=<folder> it finds the
# emulated libraries. Sets the variable to its libtorch_python.so, or to nothing.
function(spillway_link_python_torch fetched emulated library)
  set(${library} "" PARENT_SCOPE)
  file(GLOB torch "${fetched}/../python-torch-${LibTorch_VERSION}/python/lib/python3*/site-packages/torch")
  if(NOT EXISTS "${torch}/lib/libtorch_python.so")
    return()
  endif()
  file(GLOB entries RELATIVE "${torch}" "${torch}/*")
  list(REMOVE_ITEM entries lib __pycache__)
  foreach(entry IN LISTS entries)
    file(CREATE_LINK "${torch}/${entry}" "${emulated}/torch/${entry}" SYMBOLIC)
  endforeach()
  foreach(name IN ITEMS libtorch_python.so libshm.so libtorch_global_deps.so)
    file(CREATE_LINK "${torch}/lib/${name}" "${emulated}/torch/lib/${name}" SYMBOLIC)
  endforeach()
  set(${library} "${torch}/lib/libtorch_python.so" PARENT_SCOPE)
endfunction()
