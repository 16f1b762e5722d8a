#!/usr/bin/env bash
# Jackson 2.23.0 and 3.3.0 (Java) read JSON lines whose rows are arrays as the items of the first row, and drop all other rows; CBOR sequences, MessagePack and jackson-jr, too.
#
# Guess: `readValues(file)` gives each value of a file with many: rows that are arrays, as in the first example of jsonlines.org, come as arrays; if a first
# bracket can mean "the file is one array", then bytes behind its end are an error, at least with FAIL_ON_TRAILING_TOKENS.
# Seen (2026-11-30): of 1,000 rows `[1,"a"]`, read as JsonNode or Object, Jackson gives the two values 1 and "a", and ends without an error. So do a CBOR sequence (RFC 8742) by
# jackson-dataformat-cbor, a MessagePack stream by jackson-dataformat-msgpack 0.9.10, and anySequenceFrom() of jackson-jr. Of 1,000 lines that each hold an array of records, read
# as Map, it gives the records of the first line. An object in front, and all arrays arrive. readValues(parser, type) and Gson's JsonStreamParser 2.15.0 read all rows.
# Needs Java 17 with Maven and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
cat > pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>find</groupId><artifactId>find</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>com.fasterxml.jackson.core</groupId><artifactId>jackson-databind</artifactId><version>2.23.0</version></dependency>
    <dependency><groupId>com.fasterxml.jackson.dataformat</groupId><artifactId>jackson-dataformat-cbor</artifactId><version>2.23.0</version></dependency>
    <dependency><groupId>com.fasterxml.jackson.jr</groupId><artifactId>jackson-jr-objects</artifactId><version>2.23.0</version></dependency>
    <dependency><groupId>tools.jackson.core</groupId><artifactId>jackson-databind</artifactId><version>3.3.0</version></dependency>
    <dependency><groupId>org.msgpack</groupId><artifactId>jackson-dataformat-msgpack</artifactId><version>0.9.10</version></dependency>
    <dependency><groupId>com.google.code.gson</groupId><artifactId>gson</artifactId><version>2.15.0</version></dependency>
  </dependencies>
</project>
XML
mvn -q -B dependency:copy-dependencies -DoutputDirectory="$work/jars" >maven.log 2>&1 || { cat maven.log; exit 1; }
cat > Read.java <<'JAVA'
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.dataformat.cbor.databind.CBORMapper;
import com.fasterxml.jackson.jr.ob.JSON;
import com.google.gson.JsonStreamParser;
import java.io.*;
import java.nio.file.*;
import java.util.*;
import org.msgpack.jackson.dataformat.MessagePackMapper;

class Read {
    static final ObjectMapper MAPPER = new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

    static void check(String what, Iterator<?> values, int expected) {
        var found = new ArrayList<>();
        values.forEachRemaining(found::add);
        System.out.println(what + ": " + found.size() + " values, the first " + found.get(0));
        if (found.size() != expected) throw new AssertionError(what);
    }

    /** Write the lines to a file by another mapper, value after value. */
    static File written(ObjectMapper mapper, List<String> lines) throws IOException {
        var file = File.createTempFile("values", "", new File("."));
        try (var out = new FileOutputStream(file)) {
            for (var line : lines) out.write(mapper.writeValueAsBytes(MAPPER.readTree(line)));
        }
        return file;
    }

    public static void main(String[] arguments) throws Exception {
        List<String> rows = new ArrayList<>(), lists = new ArrayList<>();
        for (int n = 1; n <= 1000; n++) {
            rows.add("[" + n + ",\"a\"]");
            lists.add("[{\"n\":" + n + "},{\"n\":-" + n + "},{\"n\":0}]");
        }
        var file = Files.write(Path.of("rows.jsonl"), rows).toFile();
        check("JsonNode", MAPPER.readerFor(JsonNode.class).readValues(file), 2);
        check("Object", MAPPER.readerFor(Object.class).readValues(file), 2);
        check("Map, lines of arrays", MAPPER.readerFor(Map.class).readValues(Files.write(Path.of("lists.jsonl"), lists).toFile()), 3);
        check("Jackson 3", new tools.jackson.databind.ObjectMapper().readerFor(tools.jackson.databind.JsonNode.class).readValues(file), 2);
        check("jackson-jr", JSON.std.anySequenceFrom(file), 2);
        check("CBOR", new CBORMapper().readerFor(JsonNode.class).readValues(written(new CBORMapper(), rows)), 2);
        check("MessagePack", new MessagePackMapper().readerFor(JsonNode.class).readValues(written(new MessagePackMapper(), rows)), 2);
        check("by a parser", new ObjectMapper().readValues(MAPPER.createParser(file), JsonNode.class), 1000);
        check("Gson", new JsonStreamParser(new FileReader(file)), 1000);
        rows.add(0, "{}");
        check("an object first", new ObjectMapper().readerFor(JsonNode.class).readValues(Files.write(Path.of("mixed.jsonl"), rows).toFile()), 1001);
    }
}
JAVA
java -cp 'jars/*' Read.java
echo "Jackson 2.23.0, 3.3.0: as described"
