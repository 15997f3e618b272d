# cmake -DPAGE=a.html -DSCRIPTS=b.js,c.js -DOUTPUT=page.c -DHEADER=page.h -DNAME=page -P embed.cmake: a page, with its scripts in the
# place of @SCRIPT@, as a C string. By bytes, so that no character is special.
file(READ ${PAGE} bytes HEX)
string(REPLACE "," ";" SCRIPTS "${SCRIPTS}")
set(script)
foreach(path ${SCRIPTS})
  file(READ ${path} part HEX)
  string(APPEND script ${part})
endforeach()
string(HEX "@SCRIPT@" mark)
string(REPLACE ${mark} ${script} bytes ${bytes})
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"${HEADER}\"\nconst char ${NAME}[] = {\n${bytes}0};\n")
