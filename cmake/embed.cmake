# cmake -DINPUT=page.html -DOUTPUT=page.c -DHEADER=page.h -DNAME=page -P embed.cmake: a text file as a C string, by its bytes.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"${HEADER}\"\nconst char ${NAME}[] = {\n${bytes}0};\n")
