import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's own command-line tools, many in one JVM.
 *
 * Reads one JSON object a line ({"tool": class, "arguments": [...], "input": text}) and answers each
 * with one line: {"code": exit code, "out": ..., "errors": ...}.
 */
public class ApacheTools {
    private static final class Ended extends RuntimeException {
        Ended(int code) {
            super("exit " + code, null, false, false);
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        ObjectMapper mapper = new ObjectMapper();
        Exit.Procedure procedure = (code, message) -> {
            if (exitCode == null) { // a tool may catch what is thrown here, and exit once more
                exitCode = code;
                System.out.flush();
                System.err.flush();
                outSize = out.size();
                errorsSize = errors.size();
            }
            throw new Ended(code);
        };
        Exit.setExitProcedure(procedure);
        Exit.setHaltProcedure(procedure);
        for (String line; (line = commands.readLine()) != null; ) {
            Map<?, ?> command = mapper.readValue(line, Map.class);
            answers.println(mapper.writeValueAsString(run(command)));
            answers.flush();
        }
        answers.flush();
        Runtime.getRuntime().halt(0);
    }

    private static volatile Integer exitCode;
    private static volatile int outSize;
    private static volatile int errorsSize;
    private static volatile ByteArrayOutputStream out;
    private static volatile ByteArrayOutputStream errors;

    private static Map<String, Object> run(Map<?, ?> command) throws Exception {
        exitCode = null;
        out = new ByteArrayOutputStream();
        errors = new ByteArrayOutputStream();
        PrintStream oldOut = System.out;
        PrintStream oldErrors = System.err;
        InputStream oldInput = System.in;
        System.setOut(new PrintStream(out, true, "UTF-8"));
        System.setErr(new PrintStream(errors, true, "UTF-8"));
        Object input = command.get("input");
        System.setIn(new ByteArrayInputStream(input == null ? new byte[0] : input.toString().getBytes("UTF-8")));
        int code = 0;
        try {
            List<?> words = (List<?>) command.get("arguments");
            String[] arguments = words.stream().map(Object::toString).toArray(String[]::new);
            Class.forName((String) command.get("tool"))
                .getMethod("main", String[].class)
                .invoke(null, (Object) arguments);
        } catch (InvocationTargetException wrapped) {
            if (exitCode == null) {
                code = 99;
                wrapped.getCause().printStackTrace();
            }
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(oldOut);
            System.setErr(oldErrors);
            System.setIn(oldInput);
        }
        boolean ended = exitCode != null;
        byte[] said = out.toByteArray();
        byte[] wrong = errors.toByteArray();
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("code", ended ? exitCode : code);
        answer.put("out", new String(said, 0, ended ? outSize : said.length, "UTF-8"));
        answer.put("errors", new String(wrong, 0, ended ? errorsSize : wrong.length, "UTF-8"));
        return answer;
    }
}
